//go:build !linux

package segment

func sendfile(_, _ uintptr, _ int64, _ int) (int, error) { return 0, ErrNoSendfile }
