package registrar

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// watchAgain is how long to wait before a watch that failed is tried again. The
// poll does its work meanwhile.
const watchAgain = 30 * time.Second

// watch calls hint whenever something happens to one of the names in dir, until ctx
// is done. It may miss events, and it may not work at all: then it says so once.
func watch(ctx context.Context, dir string, names []string, hint func()) {
	var said told
	for ctx.Err() == nil {
		err := watchOnce(ctx, dir, names, hint)
		if ctx.Err() != nil {
			return
		}
		if err != nil && said.news(err.Error(), err) {
			klog.InfoS("No watch on the registration directory, looking once a second instead", "directory", dir, "because", err.Error())
		}
		pause(ctx, watchAgain)
	}
}

func watchOnce(ctx context.Context, dir string, names []string, hint func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(dir); err != nil {
		return err
	}
	hint() // what happened before the watch
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Events:
			if !ok {
				return nil
			}
			if concerns(e.Name, dir, names) {
				hint()
			}
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			hint() // the queue overflowed: anything may have happened
			klog.V(2).InfoS("The watch lost events", "directory", dir, "err", err)
		}
	}
}

// concerns says whether the event is about the directory itself or one of the names.
func concerns(path, dir string, names []string) bool {
	if filepath.Clean(path) == filepath.Clean(dir) {
		return true
	}
	for _, n := range names {
		if filepath.Base(path) == n {
			return true
		}
	}
	return false
}
