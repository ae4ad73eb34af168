package regsocket

import (
	"errors"
	"os"
)

// Spare would be a copy of the descriptor of a listening registration socket.
// There is none here: a listener cannot be passed on.
type Spare struct{}

// Spare returns errors.ErrUnsupported.
func (s *Socket) Spare() (*Spare, error) { return nil, errors.ErrUnsupported }

// AdoptSpare closes file and returns errors.ErrUnsupported.
func (p *Place) AdoptSpare(file *os.File, _ ID) (*Spare, error) {
	_ = file.Close()
	return nil, errors.ErrUnsupported
}

// ID returns the zero ID.
func (sp *Spare) ID() ID { return ID{} }

// Listen returns errors.ErrUnsupported.
func (sp *Spare) Listen() (*Socket, error) { return nil, errors.ErrUnsupported }

// Control returns errors.ErrUnsupported.
func (sp *Spare) Control(func(fd uintptr)) error { return errors.ErrUnsupported }

// Close does nothing.
func (sp *Spare) Close() error { return nil }
