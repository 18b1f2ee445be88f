package cleaner

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// cleanNow runs one round over a log, however clean it is. The clock of a bubble starts at 946684800000.
func cleanNow(t *testing.T, l *fakeLog) Stats {
	t.Helper()
	return cleanFrom(t, l, newOffsetMap(1<<16, 0.9))
}

func cleanFrom(t *testing.T, l *fakeLog, m *offsetMap) Stats {
	t.Helper()
	v := l.View()
	plan, err := newPlan(v.Offsets, &v.Policy, v.Segments, time.Now().UnixMilli())
	must(t, err)
	th := &throttle{}
	th.setRate(1e300)
	r := round{ctx: t.Context(), log: l, view: v, plan: plan, newest: m, throttle: th, buffers: newBuffers(0)}
	_, err = r.run()
	must(t, err)
	return r.stats
}

func TestNewestRecordOfAKeyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(record.BuilderOptions{}, 1, "a=1", "b=1"), keyed(record.BuilderOptions{}, 2, "a=2", "c=1", "=no key"))
		l.roll()
		l.add(keyed(record.BuilderOptions{LeaderEpoch: 3}, 3, "c=2", "d=1"), keyed(record.BuilderOptions{}, 4, "e=1"))
		l.roll()
		l.add(keyed(record.BuilderOptions{}, 5, "e=2"))
		if s := cleanNow(t, l); s.InvalidRecords != 1 || s.RecordsRead != 8 || s.RecordsWritten != 5 {
			t.Errorf("%+v", s)
		}
		expect(t, l, `
segment 0
0-1 max 1: 1 b=1@1
2-4 max 2: 2 a=2@2
5-6 max 3: 5 c=2@3 6 d=1@3
7-7 max 4: 7 e=1@4
segment 8
8-8 max 5: 8 e=2@5
`)
	})
}

// TestSupersededBatchesAreReadOnce counts what is read of batches that go, those of an aborted transaction too.
func TestSupersededBatchesAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read int64
		count := vfs.InjectorFunc(func(op vfs.Op) error {
			if op.Kind == vfs.OpRead {
				read += op.Bytes
			}
			return nil
		})
		var s vfs.Switch
		l := newFakeLog(t, vfs.NewErr(vfs.NewMem(), &s), "t-0")
		l.opts.IndexIntervalBytes = 1 << 20
		large := string(make([]byte, 2*headBytes))
		for range 10 {
			l.add(keyed(record.BuilderOptions{}, 1, "a="+large, "b="+large))
		}
		l.add(keyed(ofProducer(1, 0, 0, true), 1, "a="+large), keyed(ofProducer(2, 0, 0, true), 1, "a="+large), marker(1, 0, false))
		l.addAborted(1, 20, 22)
		l.add(keyed(record.BuilderOptions{}, 1, "a=1", "b=1"))
		l.last[2] = LastRecord{LastOffset: 21}
		l.roll()
		s.Set(count)
		stats := cleanNow(t, l)
		s.Set(nil)
		const heads = 30 * record.HeaderSizeBytes
		if read > stats.IndexedBytes+2*minBufferBytes+heads || stats.BytesRead != stats.IndexedBytes || stats.RecordsRead != 25 {
			t.Errorf("%d bytes were read: %+v", read, stats)
		}
		expect(t, l, `
segment 0
21-21 producer 2/0/0 txn max 1:
22-22 producer 1/0/-1 txn max 7: 22 ABORT
23-24 max 1: 23 a=1@1 24 b=1@1
aborted 1 from 20 to 22
segment 25
`)
	})
}

func TestTombstoneStaysUntilItsHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(record.BuilderOptions{}, 1, "a=1", "b=1"), keyed(record.BuilderOptions{Codec: record.CodecGzip}, 2, "a", "c=1"))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
0-1 max 1: 1 b=1@1
2-3 gzip horizon 946684801000 max 2: 2 a@2 3 c=1@2
segment 4
`)
		// Until then further rounds leave it alone, and its horizon too.
		time.Sleep(999 * time.Millisecond)
		l.add(keyed(record.BuilderOptions{}, 3, "b=2"))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
2-3 gzip horizon 946684801000 max 2: 2 a@2 3 c=1@2
4-4 max 3: 4 b=2@3
segment 5
`)
		time.Sleep(time.Millisecond)
		l.add(keyed(record.BuilderOptions{}, 3, "d=1"))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
2-3 gzip horizon 946684801000 max 2: 3 c=1@2
4-4 max 3: 4 b=2@3
5-5 max 3: 5 d=1@3
segment 6
`)
	})
}

func TestTimestampOfTheAppendStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(record.BuilderOptions{TimestampType: record.LogAppendTime, LogAppendTimeMillis: 99}, 1, "a=1", "b"), keyed(record.BuilderOptions{}, 2, "a=2"))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
0-1 LogAppendTime horizon 946684801000 max 99: 1 b@99
2-2 max 2: 2 a=2@2
segment 3
`)
	})
}

func TestMarkersOutliveTheirTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(ofProducer(1, 0, 0, true), 1, "a=1"), keyed(ofProducer(2, 0, 0, true), 1, "b=aborted", "x=aborted"))
		l.roll() // the transactions reach over two segments, which become one
		l.add(marker(1, 0, true), keyed(ofProducer(2, 0, 2, true), 1, "c=aborted"), marker(2, 0, false))
		l.addAborted(2, 1, 5)
		l.add(keyed(record.BuilderOptions{}, 1, "b=1"))
		l.roll()
		cleanNow(t, l)
		// The aborted records are gone; both markers have met batches of theirs in this round.
		expect(t, l, `
segment 0
0-0 producer 1/0/0 txn max 1: 0 a=1@1
3-3 producer 1/0/-1 txn max 7: 3 COMMIT
5-5 producer 2/0/-1 txn max 7: 5 ABORT
6-6 max 1: 6 b=1@1
aborted 2 from 1 to 5
segment 7
`)
		l.add(keyed(record.BuilderOptions{}, 1, "a=2"))
		l.roll()
		cleanNow(t, l)
		// Nothing is left of the aborted one: its marker has a horizon now. The committed one has just lost its record.
		expect(t, l, `
segment 0
3-3 producer 1/0/-1 txn max 7: 3 COMMIT
5-5 producer 2/0/-1 txn horizon 946684801000 max 7: 5 ABORT
6-6 max 1: 6 b=1@1
7-7 max 1: 7 a=2@1
segment 8
`)
		time.Sleep(time.Second)
		l.add(keyed(record.BuilderOptions{}, 1, "d=1"))
		l.roll()
		l.last[1] = LastRecord{LastOffset: -1, Epoch: 0} // the newest that is known of producer 1 is its marker
		cleanNow(t, l)
		expect(t, l, `
segment 0
3-3 producer 1/0/-1 txn horizon 946684802000 max 7: 3 COMMIT
6-6 max 1: 6 b=1@1
7-7 max 1: 7 a=2@1
8-8 max 1: 8 d=1@1
segment 9
`)
		time.Sleep(time.Second)
		l.add(keyed(record.BuilderOptions{}, 1, "e=1"))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
3-3 producer 1/0/-1 txn max 7:
6-6 max 1: 6 b=1@1
7-7 max 1: 7 a=2@1
8-8 max 1: 8 d=1@1
9-9 max 1: 9 e=1@1
segment 10
`)
	})
}

func TestTransactionStateIsCarriedAcrossGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.policy.SegmentBytes = 1 // every segment is a group (KAFKA-8351)
		l.add(keyed(ofProducer(1, 0, 0, true), 1, "a=aborted"), keyed(ofProducer(2, 0, 0, true), 1, "b=1"))
		l.roll()
		l.add(keyed(ofProducer(1, 0, 1, true), 1, "c=aborted"))
		l.roll()
		l.add(marker(1, 0, false), marker(2, 0, true))
		l.addAborted(1, 0, 3)
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
1-1 producer 2/0/0 txn max 1: 1 b=1@1
segment 2
segment 3
3-3 producer 1/0/-1 txn max 7: 3 ABORT
4-4 producer 2/0/-1 txn max 7: 4 COMMIT
aborted 1 from 0 to 3
segment 5
`)
	})
}

// TestRoundMayEndWithinATransaction fills the map in the middle of a transaction (KAFKA-13727).
func TestRoundMayEndWithinATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(ofProducer(1, 0, 0, true), 1, "a=1", "b=1"), keyed(ofProducer(1, 0, 2, true), 1, "c=1", "d=1"), marker(1, 0, true),
			keyed(record.BuilderOptions{}, 1, "a=2", "c=2"))
		l.roll()
		m := newOffsetMap(3*entryBytes, 1)
		cleanFrom(t, l, m)
		if l.cleaned != 3 {
			t.Errorf("cleaned to %d", l.cleaned)
		}
		expect(t, l, `
segment 0
0-1 producer 1/0/0 txn max 1: 0 a=1@1 1 b=1@1
2-3 producer 1/0/2 txn max 1: 2 c=1@1 3 d=1@1
4-4 producer 1/0/-1 txn max 7: 4 COMMIT
5-6 max 1: 5 a=2@1 6 c=2@1
segment 7
`)
		cleanFrom(t, l, m)
		expect(t, l, `
segment 0
0-1 producer 1/0/0 txn max 1: 1 b=1@1
2-3 producer 1/0/2 txn max 1: 3 d=1@1
4-4 producer 1/0/-1 txn max 7: 4 COMMIT
5-6 max 1: 5 a=2@1 6 c=2@1
segment 7
`)
	})
}

func TestLastBatchOfAProducerStaysEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(ofProducer(1, 0, 0, false), 1, "a=1", "b=1"), keyed(ofProducer(1, 0, 2, false), 1, "a=2", "b=2"),
			keyed(ofProducer(2, 5, 7, false), 1, "a=3"), keyed(record.BuilderOptions{}, 1, "a=4", "b=3"))
		l.roll()
		l.add(keyed(record.BuilderOptions{}, 1, "z=1"))
		l.last[1] = LastRecord{LastOffset: 3, Epoch: 0}
		cleanNow(t, l)
		expect(t, l, `
segment 0
2-3 producer 1/0/2 max 1:
5-6 max 1: 5 a=4@1 6 b=3@1
segment 7
7-7 max 1: 7 z=1@1
`)
	})
}

func TestEndOfTheLogStaysKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(keyed(record.BuilderOptions{}, 1, "a=1"), keyed(record.BuilderOptions{Codec: record.CodecLZ4}, 1, "=x", "=y"))
		l.roll() // nothing follows
		cleanNow(t, l)
		expect(t, l, `
segment 0
0-0 max 1: 0 a=1@1
1-2 max 1:
segment 3
`)
	})
}

// legacy makes an uncompressed record of format 0 or 1.
func legacy(magic byte, offset, timestamp int64, key, value []byte) record.Batch {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, f := range [][]byte{key, value} {
		if f == nil {
			body = binary.BigEndian.AppendUint32(body, 1<<32-1)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(f)))
		body = append(body, f...)
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// wrapped compresses records of format 1 with relative offsets; the last one has the given offset.
func wrapped(last, timestamp int64, inner ...record.Batch) record.Batch {
	var set []byte
	for _, b := range inner {
		set = append(set, b...)
	}
	b := legacy(1, last, timestamp, nil, record.Compress(nil, record.CodecGzip, record.DefaultLevel, set))
	b[17] = byte(record.CodecGzip)
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

func TestOldFormatsBecomeFormat2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(
			legacy(0, 0, 0, []byte("a"), []byte("1")),
			legacy(1, 1, 11, []byte("b"), []byte("1")),
			legacy(1, 2, 12, nil, []byte("no key")),
			wrapped(5, 15, legacy(1, 0, 13, []byte("c"), []byte("1")), legacy(1, 1, 14, []byte("d"), []byte("1")), legacy(1, 2, 15, []byte("b"), nil)),
			legacy(1, 6, 16, []byte("c"), []byte("2")),
		)
		l.roll()
		l.add(legacy(1, 7, 17, []byte("z"), []byte("1")))
		modified, err := l.segments[0].LastModifiedMillis()
		must(t, err)
		time.Sleep(time.Second)
		cleanNow(t, l)
		expect(t, l, `
segment 0
0-0 max -1: 0 a=1@-1
4-5 gzip horizon 946684802000 max 15: 4 d=1@14 5 b@15
6-6 max 16: 6 c=2@16
segment 7
7-7 v1 max 17: 7 z=1@17
`)
		if now, err := l.segments[0].LastModifiedMillis(); err != nil || now != modified {
			t.Errorf("written at %d, the originals at %d (%v)", now, modified, err)
		}
	})
}

func TestOldTombstonesGoByTheAgeOfTheirSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.policy.SegmentBytes = 1
		l.add(legacy(1, 0, 10, []byte("a"), nil))
		l.roll()
		time.Sleep(2 * time.Second)
		l.add(legacy(1, 1, 11, []byte("b"), nil), legacy(1, 2, 11, []byte("c"), []byte("1")))
		l.roll()
		l.add(legacy(1, 3, 12, []byte("d"), nil), legacy(1, 4, 12, []byte("e"), []byte("1")))
		l.roll()
		l.cleaned = 3 // the last clean segment was written now, so that tombstones of a second ago may go
		cleanNow(t, l)
		expect(t, l, `
segment 0
segment 1
1-1 horizon 946684803000 max 11: 1 b@11
2-2 max 11: 2 c=1@11
segment 3
3-3 horizon 946684803000 max 12: 3 d@12
4-4 max 12: 4 e=1@12
segment 5
`)
	})
}

func TestEmptiedEndOfOldFormatStaysKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		l.add(legacy(1, 0, 10, []byte("a"), []byte("1")), legacy(1, 1, 11, nil, []byte("no key")))
		l.roll()
		cleanNow(t, l)
		expect(t, l, `
segment 0
0-0 max 10: 0 a=1@10
1-1 max -1:
segment 2
`)
	})
}

func TestLargeBatchesPassThroughSmallBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, vfs.NewMem(), "t-0")
		large := string(make([]byte, 3*minBufferBytes))
		l.add(keyed(record.BuilderOptions{}, 1, "a="+large, "b="+large), keyed(record.BuilderOptions{}, 2, "a=2"), keyed(record.BuilderOptions{}, 2, "c="+large))
		l.roll()
		if s := cleanNow(t, l); s.RecordsWritten != 3 || s.BytesWritten >= s.BytesRead || s.BytesRead != s.IndexedBytes {
			t.Errorf("%+v", s)
		}
	})
}
