package blob

import (
	"errors"
	"slices"
	"syscall"
)

// passes are the errors of a system that an operator or time mends: no room, a
// disk that was taken away or is read-only, permissions, a network file system
// that is away, a machine short of something.
var passes = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN, syscall.EINTR, syscall.EBUSY,
	syscall.ESTALE, syscall.ENODEV, syscall.ENXIO, syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
	syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
}

// SystemPasses reports whether an error is one of the system that keeps files
// and connections, and will be gone when that is set right.
func SystemPasses(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && slices.Contains(passes, number)
}
