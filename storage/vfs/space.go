package vfs

import "syscall"

// SyncError marks the failure of a sync: of a file, of a directory, of a volume. The kernel may have dropped what it could
// not write, and reports that once; nobody can tell what of the data is on the disk.
type SyncError struct{ Err error }

func (e *SyncError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *SyncError) Unwrap() error { return e.Err }

// syncFailed marks the failure of a sync, if it is one.
func syncFailed(err error) error {
	if err == nil {
		return nil
	}
	return &SyncError{Err: err}
}

// IsNoSpace tells that an operation failed because the file system, or our quota of it, is full, and for no other reason
// (a rollback that failed for another one, joined to it, is another one). The same operation may be tried again later. The
// failure of a sync never is one, whatever its errno: with delayed allocation a full disk shows there, but the data that was
// to be written may be gone by then, and a second sync would answer nil without it.
func IsNoSpace(err error) bool {
	full := false
	return onlyNoSpace(err, &full) && full
}

func onlyNoSpace(err error, full *bool) bool {
	switch e := err.(type) { //nolint:errorlint // this is the walk over the tree itself
	case *SyncError:
		return false
	case syscall.Errno:
		*full = *full || e == syscall.ENOSPC || e == syscall.EDQUOT
		return e == syscall.ENOSPC || e == syscall.EDQUOT
	case interface{ Unwrap() error }:
		return onlyNoSpace(e.Unwrap(), full)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if !onlyNoSpace(inner, full) {
				return false
			}
		}
	}
	return true
}

// removeIfFull removes a file that could not be written for want of space, so that it takes none. What cannot be removed
// either is overwritten by the next try.
func removeIfFull(fsys FS, name string, err error) {
	if IsNoSpace(err) {
		_ = fsys.Remove(name)
	}
}
