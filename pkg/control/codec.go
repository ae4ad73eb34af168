package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	// ErrVersion says that the peer speaks another major version of the frames.
	ErrVersion = errors.New("another major version of the control protocol")
	// ErrTooLong says that a frame has a body of more than 16 KiB.
	ErrTooLong = errors.New("frame too long")
	// ErrRubbish says that what came is not a frame, or not as its kind must be.
	ErrRubbish = errors.New("not a frame")
)

const (
	magic      = "hf"
	major      = 1
	headerSize = 8
	maxBody    = 16 << 10
)

// encode returns f with its header.
func encode(f Frame) ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLong, len(body), maxBody)
	}
	frame := make([]byte, headerSize, headerSize+len(body))
	copy(frame, magic)
	frame[2] = major
	frame[3] = byte(f.kind())
	binary.BigEndian.PutUint32(frame[4:], uint32(len(body)))
	return append(frame, body...), nil
}

// decode reads one frame and not a byte more. It returns nil for a kind that is
// not known. The error is io.EOF if r ends before the first byte, and
// io.ErrUnexpectedEOF if it ends later; after any error r is good for nothing.
func decode(r io.Reader) (Frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	if string(header[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it begins with %q", ErrRubbish, header[:len(magic)])
	}
	if header[2] != major {
		return nil, fmt.Errorf("%w: %d, and %d here", ErrVersion, header[2], major)
	}
	length := binary.BigEndian.Uint32(header[4:])
	if length > maxBody {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLong, length, maxBody)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return parse(kind(header[3]), body)
}

func parse(k kind, body []byte) (Frame, error) {
	switch k {
	case kindHello:
		return unmarshal[Hello](body)
	case kindPublish:
		return unmarshal[Publish](body)
	case kindReady:
		return unmarshal[Ready](body)
	case kindIsReady:
		return unmarshal[IsReady](body)
	case kindHandover:
		return unmarshal[Handover](body)
	case kindAccepting:
		return unmarshal[Accepting](body)
	case kindNews:
		return unmarshal[News](body)
	case kindMoved:
		return unmarshal[Moved](body)
	case kindGoodbye:
		return unmarshal[Goodbye](body)
	case kindYielded:
		return unmarshal[Yielded](body)
	}
	return nil, nil
}

func unmarshal[F Frame](body []byte) (Frame, error) {
	var f F
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("%w: kind %d: %w", ErrRubbish, f.kind(), err)
	}
	return f, nil
}
