package segment

import (
	"errors"
	"syscall"
	"testing"

	"gregor/storage/vfs"
)

// TestIndexEntriesWaitForSpaceInMemory: an append does not fail because of an index, which is written when it must be.
func TestIndexEntriesWaitForSpaceInMemory(t *testing.T) {
	mem, disk := vfs.NewMem(), &vfs.Switch{}
	o := testOptions(vfs.NewErr(mem, disk))
	o.IndexIntervalBytes, o.IndexMaxBytes = 50, 1<<20
	s := newSegment(t, mem, 0, o)
	disk.Set(vfs.FailFrom(1, syscall.ENOSPC, vfs.MatchPath("index")))
	const batches = 2000
	fill(t, s, batches)
	for i := range int64(20) {
		must(t, s.AppendAborted(AbortedTxn{ProducerID: 1, FirstOffset: i, LastOffset: i, LastStableOffset: i + 1}))
	}
	offsets, times, err := s.IndexBytes()
	must(t, err)
	if offsets < batches*offsetEntryBytes/2 || times < batches*timeEntryBytes/2 {
		t.Errorf("%d and %d bytes of entries", offsets, times)
	}
	if err := s.Seal(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("sealed without its indexes: %v", err)
	}
	disk.Set(nil)
	must(t, s.Seal())
	again := reopen(t, s, o)
	must(t, again.CheckIndexes(false))
	inFile, timesInFile, err := again.IndexBytes()
	must(t, err)
	aborted, _, err := again.CollectAborted(nil, 0, 100)
	must(t, err)
	if inFile != offsets || timesInFile < times || len(aborted) != 20 {
		t.Errorf("%d and %d bytes, %d aborted transactions are in the files", inFile, timesInFile, len(aborted))
	}
}
