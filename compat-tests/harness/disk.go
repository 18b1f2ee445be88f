package harness

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
)

const (
	// shutdownIoctl is FS_IOC_SHUTDOWN (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN).
	shutdownIoctl = 0x8004587d
	// withoutFlush leaves the journal unwritten: nothing reaches the disk any more.
	withoutFlush = 2
	// imageBytes is more than XFS needs at least.
	imageBytes = 400 << 20
)

// Disk is a file system in a file, mounted at Path.
type Disk struct {
	Path    string
	t       *testing.T
	kind    string
	image   string
	mounted bool
}

// NewDisk makes and mounts a file system, ext4 or xfs, or skips the test where that is not possible.
func NewDisk(t *testing.T, kind string) *Disk {
	t.Helper()
	Need(t, "losetup", "mkfs."+kind)
	if os.Geteuid() != 0 {
		Unavailable(t, "mounting a file system needs root")
	}
	dir := t.TempDir()
	d := &Disk{t: t, kind: kind, image: filepath.Join(dir, "image"), Path: filepath.Join(dir, "mount")}
	if err := os.Mkdir(d.Path, 0o755); err != nil {
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
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.Path).CombinedOutput(); err != nil {
		Unavailable(t, "no loop device can be mounted here: "+err.Error()+": "+strings.TrimSpace(string(out)))
	}
	d.mounted = true
	t.Cleanup(d.Unmount)
	return d
}

// Mount mounts the file system again; it replays its journal.
func (d *Disk) Mount() {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.Path).CombinedOutput(); err != nil {
		d.t.Fatalf("the file system cannot be mounted again: %v\n%s", err, out)
	}
	d.mounted = true
}

// Unmount unmounts it, as soon as nobody has a file open there.
func (d *Disk) Unmount() {
	d.t.Helper()
	if !d.mounted {
		return
	}
	d.mounted = false
	Eventually(d.t, 20*time.Second, "the file system is unmounted", func() bool {
		return exec.Command("umount", d.Path).Run() == nil
	})
}

// Shutdown stops the file system at once: what was not synced is lost as in a power cut, and all that follows fails.
func (d *Disk) Shutdown() {
	d.t.Helper()
	dir, err := os.Open(d.Path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = dir.Close() }() // only for the ioctl
	var flag [4]byte
	binary.NativeEndian.PutUint32(flag[:], withoutFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdownIoctl, uintptr(unsafe.Pointer(&flag[0]))); errno != 0 {
		Unavailable(d.t, d.kind+" cannot be shut down here: "+errno.Error())
	}
}
