package storage

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"gregor/protocol/record"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

func TestTruncationWithinABatchRemovesItAndEndsWhereAsked(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	appendBatch(t, l, 3, 1)
	appendBatch(t, l, 3, 1)
	must(t, l.TruncateTo(5))
	if s := l.State(); s.LogEndOffset != 5 {
		t.Fatalf("end %d", s.LogEndOffset)
	}
	if info := appendBatch(t, l, 1, 1); info.FirstOffset != 5 {
		t.Fatalf("appended at %d", info.FirstOffset)
	}
	var offsets []int64
	for b := range record.Validated(contents(t, l, UpToLogEnd)) {
		offsets = append(offsets, b.BaseOffset(), b.LastOffset())
	}
	if !slices.Equal(offsets, []int64{0, 2, 5, 5}) {
		t.Errorf("batches %v", offsets)
	}
}

func TestTruncationRevokesRangesBeyondAndKeepsThoseBelow(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	for range 4 {
		appendBatch(t, l, 1, 1)
	}
	size := int(l.State().SizeBytes / 4)
	below, err := l.Read(0, 2*size, UpToLogEnd, true)
	must(t, err)
	beyond, err := l.Read(1, 1<<20, UpToLogEnd, true)
	must(t, err)
	want := make([]byte, 2*size)
	_, err = below.Range.ReadAt(want, 0)
	must(t, err)
	must(t, l.TruncateTo(2))
	appendBatch(t, l, 5, 1)
	got := make([]byte, 2*size)
	if _, err := below.Range.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("range below the truncation: %v", err)
	}
	if _, err := beyond.Range.ReadAt(got, 0); !errors.Is(err, segment.ErrRangeGone) {
		t.Errorf("range beyond the truncation: %v", err)
	}
	if _, err := beyond.Range.SendTo(0, 0, 10); !errors.Is(err, segment.ErrNoSendfile) && !errors.Is(err, segment.ErrRangeGone) {
		t.Errorf("sendfile beyond the truncation: %v", err)
	}
	below.Range.Release()
	beyond.Range.Release()
	beyond.Range.Release()
}

func TestFollowerKeepsTheLeadersBytes(t *testing.T) {
	leader, follower := openLog(t, testOptions(vfs.NewMem())), openLog(t, testOptions(vfs.NewMem()))
	for i := range 20 {
		_, err := leader.AppendAsLeader(batchOf(2, int64(i), record.BuilderOptions{Codec: record.Codec(i % 2 * 3)}), int32(i/7), AppendOptions{})
		must(t, err)
	}
	for follower.State().LogEndOffset < 40 {
		f, err := leader.Read(follower.State().LogEndOffset, 333, UpToLogEnd, true)
		must(t, err)
		buf := make([]byte, f.Range.Len())
		_, err = f.Range.ReadAt(buf, 0)
		must(t, err)
		f.Range.Release()
		_, err = follower.AppendAsFollower(buf, 2) // the last batch may be cut
		must(t, err)
	}
	mustEqualBytes(t, "follower", contents(t, follower, UpToLogEnd), contents(t, leader, UpToLogEnd))
	if got, want := follower.EpochEntries(), leader.EpochEntries(); !slices.Equal(got, want) {
		t.Errorf("epochs %v, want %v", got, want)
	}
}

func TestFollowerRefusesWhatALeaderCannotHaveSent(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	good := batchOf(2, 1, record.BuilderOptions{BaseOffset: 5})
	_, err := l.AppendAsFollower(good, 0)
	must(t, err)
	flipped := batchOf(2, 1, record.BuilderOptions{BaseOffset: 7})
	flipped[len(flipped)-1] ^= 1
	backwards := slices.Concat(batchOf(2, 1, record.BuilderOptions{BaseOffset: 9}), batchOf(1, 1, record.BuilderOptions{BaseOffset: 8}))
	magic := batchOf(1, 1, record.BuilderOptions{BaseOffset: 7})
	magic[16] = 9
	for name, c := range map[string]struct {
		batches []byte
		want    error
	}{
		"crc": {flipped, ErrCorrupt}, "order": {backwards, ErrUnexpectedOffset}, "magic": {magic, ErrCorrupt},
		"below the end": {good, ErrUnexpectedOffset}, "length": {[]byte{0, 0, 0, 0, 0, 0, 0, 7, 255, 255, 255, 255, 0, 0, 0, 0, 2}, ErrCorrupt},
	} {
		if _, err := l.AppendAsFollower(c.batches, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var unexpected *UnexpectedOffsetError
	_, err = l.AppendAsFollower(good, 0)
	if !errors.As(err, &unexpected) || *unexpected != (UnexpectedOffsetError{FirstOffset: 5, LastOffset: 6, LogEndOffset: 7}) {
		t.Errorf("got %+v", unexpected)
	}
	info, err := l.AppendAsFollower(nil, 0)
	if err != nil || info.FirstOffset != -1 || l.State().LogEndOffset != 7 {
		t.Errorf("empty append: %+v, %v, end %d", info, err, l.State().LogEndOffset)
	}
}

func TestFollowersAppendLargerThanASegmentIsSplit(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes = 250
	l := openLog(t, o)
	var all []byte
	for i := range int64(5) {
		all = append(all, batchOf(2, 1, record.BuilderOptions{BaseOffset: 2 * i})...)
	}
	info, err := l.AppendAsFollower(all, 0)
	must(t, err)
	if info.FirstOffset != 0 || info.LastOffset != 9 || info.Batches != 5 || info.Bytes != len(all) {
		t.Errorf("%+v", info)
	}
	if s := l.State(); s.Segments != 3 {
		t.Errorf("%d segments", s.Segments)
	}
	mustEqualBytes(t, "log", contents(t, l, UpToLogEnd), all)
}

func TestLeaderRefusesEmptyTruncatedAndOldBatches(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	b := batchOf(1, 1, record.BuilderOptions{})
	old := append([]byte(nil), b...)
	old[16] = 1
	for name, c := range map[string]struct {
		batches []byte
		want    error
	}{"empty": {nil, ErrEmptyAppend}, "cut": {b[:len(b)-1], ErrCorrupt}, "old": {old, ErrCorrupt}} {
		if _, err := l.AppendAsLeader(c.batches, 0, AppendOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.State().LogEndOffset != 0 || l.Err() != nil {
		t.Errorf("end %d, %v", l.State().LogEndOffset, l.Err())
	}
}

func TestObserverSeesEachChangeOfOffsetsInOrder(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	var seen []int64
	l.SetObserver(func(s *State) { seen = append(seen, s.LogEndOffset, s.HighWatermark) })
	appendBatch(t, l, 2, 1)
	_, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{AloneInSync: true})
	must(t, err)
	must(t, l.Flush(3)) // moves no offset
	_, err = l.UpdateHighWatermark(1)
	must(t, err)
	must(t, l.TruncateTo(1))
	l.SetObserver(nil)
	appendBatch(t, l, 2, 1)
	if !slices.Equal(seen, []int64{2, 0, 3, 3, 1, 1}) {
		t.Errorf("saw %v", seen)
	}
}

func TestTopicIDIsDurableBeforeTheFirstRecordAndChecked(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll("/data"))
	must(t, fsys.SyncDir("/"))
	o := testOptions(fsys)
	o.TopicID = [16]byte{1, 2, 3}
	l := openLog(t, o)
	appendBatch(t, l, 1, 1)
	must(t, l.Flush(1))
	after := fsys.Crash(0)
	if b := readFile(t, after, "partition.metadata"); !bytes.HasPrefix(b, []byte("version: 0\ntopic_id: AQID")) {
		t.Errorf("partition.metadata %q", b)
	}
	o.FS, o.TopicID = after, [16]byte{}
	if again := openLog(t, o); again.TopicID() != [16]byte{1, 2, 3} || again.State().LogEndOffset != 1 {
		t.Errorf("id %x, end %d", again.TopicID(), again.State().LogEndOffset)
	}
	o.FS, o.TopicID = fsys.Crash(0), [16]byte{9}
	if _, err := OpenLog(o); !errors.Is(err, ErrInconsistentTopicID) {
		t.Errorf("another id: %v", err)
	}
}

func TestRenamedDirectoryGoesOn(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.Files = vfs.NewCache(fsys, 1)
	l := openLog(t, o)
	appendBatch(t, l, 1, 1)
	must(t, l.Roll())
	f, err := l.Read(0, 100, UpToLogEnd, true)
	must(t, err)
	const renamed = "/data/t-0.0123-delete"
	must(t, l.RenameDir(renamed))
	appendBatch(t, l, 1, 1)
	if l.Dir() != renamed || len(contents(t, l, UpToLogEnd)) == 0 {
		t.Errorf("directory %s", l.Dir())
	}
	f.Range.Release()
	must(t, l.Roll())
	must(t, l.Close())
	for _, name := range []string{"00000000000000000000.index", "00000000000000000002.snapshot", "leader-epoch-checkpoint"} {
		if there, err := vfs.Exists(fsys, renamed+"/"+name); !there {
			t.Errorf("%s is missing: %v", name, err)
		}
	}
	if there, _ := vfs.Exists(fsys, testDir); there {
		t.Error("the old directory is still there")
	}
}

func TestDeleteRemovesTheDirectory(t *testing.T) {
	fsys := vfs.NewMem()
	l := openLog(t, testOptions(fsys))
	appendBatch(t, l, 1, 1)
	must(t, l.Delete())
	if there, _ := vfs.Exists(fsys, testDir); there {
		t.Error("the directory is still there")
	}
	if _, err := l.AppendAsLeader(batchOf(1, 1, record.BuilderOptions{}), 0, AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a deleted log: %v", err)
	}
	if _, err := l.ReadBatches(0, nil, 100, UpToLogEnd); !errors.Is(err, ErrClosed) {
		t.Errorf("read of a deleted log: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("close of a deleted log: %v", err)
	}
}

func TestMetadataLogKeepsItsIndexSizeAndIsReadFromZeroFill(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.Config.KeepActiveIndexSize, o.Config.IndexIntervalBytes = true, 100
	l := openLog(t, o)
	var want []byte
	for i := range int64(30) {
		b := batchOf(1, i+1, record.BuilderOptions{BaseOffset: i, LeaderEpoch: int32(i / 9)})
		_, err := l.AppendRaft(b)
		must(t, err)
		want = append(want, b...)
	}
	must(t, l.Flush(30))
	must(t, l.Close())
	for name, size := range map[string]int{"00000000000000000000.index": 4096, "00000000000000000000.timeindex": 4092} {
		if n := len(readFile(t, fsys, name)); n != size {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
	o.HadCleanShutdown = true
	l = openLog(t, o)
	mustEqualBytes(t, "log", contents(t, l, UpToLogEnd), want)
	found, err := l.OffsetForTimestamp(25, UpToLogEnd)
	if err != nil || found.Offset != 24 {
		t.Errorf("timestamp 25 at %+v, %v", found, err)
	}
	if epoch, ok := l.EpochForOffset(20); !ok || epoch != 2 {
		t.Errorf("epoch of 20 is %d", epoch)
	}
}

func TestPreallocatedSegmentIsCutOnCloseAndRecovery(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	o.Config.Preallocate, o.Config.SegmentBytes = true, 5000
	l := openLog(t, o)
	appendBatch(t, l, 3, 1)
	size := int(l.State().SizeBytes)
	if n := len(readFile(t, fsys, "00000000000000000000.log")); n != 5000 {
		t.Errorf("%d bytes preallocated", n)
	}
	crashed := o
	crashed.FS = fsys.Crash(vfs.CrashKeepAll)
	if again := openLog(t, crashed); again.State().LogEndOffset != 3 || int(again.State().SizeBytes) != size {
		t.Errorf("recovered %+v", again.State())
	}
	must(t, l.Close())
	if n := len(readFile(t, fsys, "00000000000000000000.log")); n != size {
		t.Errorf("%d bytes after the close", n)
	}
}

func TestSmallDescriptorCacheServesManyLogs(t *testing.T) {
	fsys := vfs.NewMem()
	files := vfs.NewCache(fsys, 5)
	var logs []*Log
	for i := range 20 {
		o := testOptions(fsys)
		o.Files, o.Dir = files, testDir+string(rune('a'+i))
		logs = append(logs, openLog(t, o))
	}
	for range 3 {
		for _, l := range logs {
			appendBatch(t, l, 1, 1)
			must(t, l.Roll())
		}
	}
	for _, l := range logs {
		l.bg.wait()
		if n := len(contents(t, l, UpToLogEnd)); n == 0 {
			t.Error("nothing to read")
		}
	}
	if open := files.Stats().Open; open > 5 {
		t.Errorf("%d descriptors", open)
	}
}

func TestReadBatchesReusesTheBufferAndGivesAtLeastOneBatch(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	for range 3 {
		appendBatch(t, l, 4, 1)
	}
	buf := make([]byte, 0, 10000)
	b, err := l.ReadBatches(0, buf, 1, UpToLogEnd)
	must(t, err)
	if &b[0] != &buf[:1][0] {
		t.Error("another buffer")
	}
	if first, rest, err := record.Next(b); err != nil || len(rest) != 0 || first.LastOffset() != 3 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := l.ReadBatches(0, nil, 100, UpToHighWatermark); !errors.Is(err, io.EOF) {
		t.Errorf("above the high watermark: %v", err)
	}
}

func TestHighWatermarkNeverFalls(t *testing.T) {
	l := openLog(t, testOptions(vfs.NewMem()))
	appendBatch(t, l, 5, 1)
	for _, step := range [][2]int64{{3, 3}, {1, 3}, {-1, 3}, {99, 5}, {4, 5}} {
		got, err := l.UpdateHighWatermark(step[0])
		if err != nil || got != step[1] || l.State().HighWatermark != step[1] {
			t.Errorf("after %d: %d, %v", step[0], got, err)
		}
	}
}

func TestTieredLogDeletesOnlyWhatIsCopied(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RemoteStorageEnable, o.Config.LocalRetentionBytes = true, 0
	l := openLog(t, o)
	for range 4 {
		appendBatch(t, l, 1, 1)
		must(t, l.Roll())
	}
	_, err := l.UpdateHighWatermark(4)
	must(t, err)
	for _, step := range []struct{ remote, deleted, start int64 }{{-1, 0, 0}, {0, 1, 1}, {1, 1, 2}, {1, 0, 2}} {
		l.SetRemoteEnd(step.remote)
		n, err := l.DeleteOldSegments(time.Now())
		if err != nil || int64(n) != step.deleted || l.State().segments[0].Base() != step.start {
			t.Errorf("copied to %d: %d deleted, %v, first segment %d", step.remote, n, err, l.State().segments[0].Base())
		}
	}
	// The log still starts at 0, but that is elsewhere now.
	if s := l.State(); s.LogStartOffset != 0 || s.LocalLogStartOffset != 2 {
		t.Errorf("start %d, local start %d", s.LogStartOffset, s.LocalLogStartOffset)
	}
	if _, err := l.Read(1, 100, UpToLogEnd, true); !errors.Is(err, ErrOffsetMovedToTiered) {
		t.Errorf("read of what is copied: %v", err)
	}
	if f, err := l.Read(2, 100, UpToLogEnd, true); err != nil || f.Range == nil {
		t.Errorf("read of what is local: %v", err)
	} else {
		f.Range.Release()
	}
	must(t, l.Close())
	o.HadCleanShutdown, o.LogStartOffset = true, 0
	if s := openLog(t, o).State(); s.LogStartOffset != 0 || s.LocalLogStartOffset != 2 {
		t.Errorf("after a start: start %d, local start %d", s.LogStartOffset, s.LocalLogStartOffset)
	}
}
