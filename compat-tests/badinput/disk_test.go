package badinput

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gregor/compat-tests/harness"
)

// smallDisk mounts a file system of a few megabytes, or skips the test where that is not allowed.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Unavailable(t, "needs root to mount a small file system")
	}
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("gregor-compat", dir, "tmpfs", 0, options); err != nil {
		harness.Unavailable(t, "needs the right to mount a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestReadOnlyDirectoryIsRefused(t *testing.T) {
	dir := smallDisk(t, "size=48m")
	if err := unix.Mount("gregor-compat", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		harness.Unavailable(t, "cannot make the disk read-only: "+err.Error())
	}
	n := harness.New(t, harness.Gregor, harness.Options{LogDir: filepath.Join(dir, "data")})
	n.Launch(t)
	if status := n.Wait(t, 20*time.Second); status != 1 {
		t.Errorf("exit status %d:\n%s", status, n.LogTail(5))
	}
}
