package blob

import (
	"errors"
	"slices"
	"syscall"
)

// transientErrors are system errors that disappear with time or when an
// operator fixes the cause: a full disk, a disk that was removed or is read-only,
// permissions, a network file system that is not reachable, a machine that
// lacks memory or other resources.
var transientErrors = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN, syscall.EINTR, syscall.EBUSY,
	syscall.ESTALE, syscall.ENODEV, syscall.ENXIO, syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
	syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
}

// IsTransient reports whether err is an error of the system's files or
// connections that will disappear with time or when an operator fixes the cause.
func IsTransient(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && slices.Contains(transientErrors, number)
}
