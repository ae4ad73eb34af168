package regsocket

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

const (
	errRefused = windows.WSAECONNREFUSED
	errBusy    = windows.WSAEWOULDBLOCK
	errDenied  = windows.WSAEACCES
)

// idOf opens the file itself, not what it stands for, and asks for its number.
// NTFS has numbers that it does not give again soon; a file system that has none
// leaves only the time. It is the time of the last write, since a name that is
// removed and made anew within 15 s inherits the time of creation.
func idOf(path string, info fs.FileInfo) (ID, error) {
	id := ID{Changed: info.ModTime().UnixNano()}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return ID{}, err
	}
	handle, err := windows.CreateFile(name, 0,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil,
		windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return ID{}, err
	}
	defer windows.CloseHandle(handle)
	var data windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(handle, &data); err != nil {
		return id, nil // The time is what there is.
	}
	id.Dev = uint64(data.VolumeSerialNumber)
	id.Ino = uint64(data.FileIndexHigh)<<32 | uint64(data.FileIndexLow)
	return id, nil
}

// owner names the owner of a file, for the words of an error: nobody here.
func owner(fs.FileInfo) string { return "" }

// unlinked reports whether a directory that was found by its path was removed
// nevertheless: that cannot be here.
func unlinked(fs.FileInfo) bool { return false }
