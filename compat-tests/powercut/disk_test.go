// Package powercut cuts the power under a broker: its log directory is a file system of its own in a file, which an ioctl
// stops at once, so that what was not synced is lost as in a power cut. Then it is mounted again.
package powercut

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gregor/compat-tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	// shutdownIoctl is FS_IOC_SHUTDOWN (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN).
	shutdownIoctl = 0x8004587d
	// withoutFlush leaves the journal unwritten: nothing reaches the disk any more.
	withoutFlush = 2
	// imageBytes is more than XFS needs at least.
	imageBytes = 400 << 20
)

// disk is a file system in a file.
type disk struct {
	t           *testing.T
	kind        string
	image, path string
	mounted     bool
}

// newDisk makes and mounts a file system, or skips the test where that is not possible.
func newDisk(t *testing.T, kind string) *disk {
	t.Helper()
	harness.Need(t, "losetup", "mkfs."+kind)
	if os.Geteuid() != 0 {
		harness.Unavailable(t, "mounting a file system needs root")
	}
	dir := t.TempDir()
	d := &disk{t: t, kind: kind, image: filepath.Join(dir, "image"), path: filepath.Join(dir, "mount")}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, imageBytes); err != nil {
		t.Fatal(err)
	}
	force := map[string]string{"ext4": "-F", "xfs": "-f"}[kind]
	if out, err := exec.Command("mkfs."+kind, "-q", force, d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v\n%s", kind, err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.path).CombinedOutput(); err != nil {
		harness.Unavailable(t, "no loop device can be mounted here: "+err.Error()+": "+strings.TrimSpace(string(out)))
	}
	d.mounted = true
	t.Cleanup(d.unmount)
	return d
}

// mount mounts the file system again; it replays its journal.
func (d *disk) mount() {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.path).CombinedOutput(); err != nil {
		d.t.Fatalf("the file system cannot be mounted again: %v\n%s", err, out)
	}
	d.mounted = true
}

func (d *disk) unmount() {
	d.t.Helper()
	if !d.mounted {
		return
	}
	d.mounted = false
	harness.Eventually(d.t, 20*time.Second, "the file system is unmounted", func() bool {
		return exec.Command("umount", d.path).Run() == nil
	})
}

// cutPower stops the file system.
func (d *disk) cutPower() {
	d.t.Helper()
	dir, err := os.Open(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = dir.Close() }() // only for the ioctl
	var flag [4]byte
	binary.NativeEndian.PutUint32(flag[:], withoutFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdownIoctl, uintptr(unsafe.Pointer(&flag[0]))); errno != 0 {
		harness.Unavailable(d.t, d.kind+" cannot be shut down here: "+errno.Error())
	}
}
