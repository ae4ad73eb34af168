package regsocket

import "errors"

func childChroot(string) error { return errors.ErrUnsupported }
