package badinput

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
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

func TestFullDiskLosesNothing(t *testing.T) {
	dir := smallDisk(t, "size=48m")
	n := harness.Start(t, harness.Gregor, harness.Options{LogDir: filepath.Join(dir, "data")})
	topic := wire.CreateTopic(t, n, "full", 1, "segment.bytes", "4194304")
	value, acknowledged := make([]byte, 900000), int64(0)
	for range 200 {
		c := wire.Dial(t, n.Addr)
		resp, closed := c.Try(wire.ProduceRequest(12, topic, 0, -1, wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: value}).Encode()))
		_ = c.Close()
		if closed || resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode != 0 {
			break
		}
		acknowledged++
	}
	if acknowledged == 0 || acknowledged == 200 {
		t.Fatalf("%d batches of 900 kB were acknowledged on a disk of 48 MB", acknowledged)
	}
	if status := n.Wait(t, 60*time.Second); status != 1 { // its only log directory is offline: as Kafka, it stops
		t.Errorf("exit status %d:\n%s", status, n.LogTail(5))
	}
	if err := unix.Mount("gregor-compat", dir, "tmpfs", unix.MS_REMOUNT, "size=256m"); err != nil {
		harness.Unavailable(t, "cannot make the disk larger: "+err.Error())
	}
	n.Start(t)
	wire.AwaitLeaders(t, n, topic.Name, 1)
	if end := wire.ListOffset(t, n.Addr, 8, topic, 0, -1).Offset; end < acknowledged {
		t.Errorf("%d batches were acknowledged, %d are there", acknowledged, end)
	}
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
