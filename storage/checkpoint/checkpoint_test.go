package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gregor/storage/vfs"
)

// wantSyntax checks that a file is refused, and where.
func wantSyntax(t *testing.T, err error, line int) {
	t.Helper()
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || !errors.Is(err, ErrSyntax) {
		t.Fatalf("not a syntax error: %v", err)
	}
	if syntax.Path != "/f" || syntax.Line != line || syntax.Reason == "" {
		t.Fatalf("%v, want it on line %d of /f", err, line)
	}
}

func TestMalformedOffsetCheckpointNamesFileAndLine(t *testing.T) {
	for contents, line := range map[string]int{
		"1\n0\n":                1,
		"x":                     1,
		"\n":                    1,
		"0\nmany\n":             2,
		"0\n-1\n":               2,
		"0\n1\n":                2,
		"0\n2\nt 0 1\n":         3,
		"0\n1\nt 0 1\nt 1 1\n":  4,
		"0\n1\nt 0\n":           3,
		"0\n1\nt 0 1 2\n":       3,
		"0\n2\nt 0 1\nt one 1":  4,
		"0\n1\nt -1 1\n":        3,
		"0\n1\nt 0 ten\n":       3,
		"0\n1\nt 0 +1\n":        3,
		"0\n1\nt 0 1_0\n":       3,
		"0\n1\nt 3000000000 1":  3,
		"0\n1\n\x00\x00\x00\n":  3,
		"0\n99999999999\nt 0 1": 2,
	} {
		_, err := ReadOffsets(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, line)
	}
}

func TestEmptyCheckpointHasNoEntries(t *testing.T) {
	for _, contents := range []string{"", "0\n", "0\n0\n", "0\r\n0\r\n"} {
		offsets, err := ReadOffsets(given(t, []byte(contents)), "/f")
		if err != nil || len(offsets) != 0 {
			t.Fatalf("%q: %v, %v", contents, offsets, err)
		}
	}
}

func TestMissingFileIsNotExist(t *testing.T) {
	m := vfs.NewMem()
	_, offsets := ReadOffsets(m, "/f")
	_, epochs := ReadEpochs(m, "/f")
	_, meta := ReadMetaProperties(m, "/f")
	_, partition := ReadPartitionMetadata(m, "/f")
	_, quorum := ReadQuorumState(m, "/f")
	_, clean := ReadCleanShutdown(m, "/f")
	for _, err := range []error{offsets, epochs, meta, partition, quorum, clean} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func TestOffsetsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOf(rapid.Custom(func(t *rapid.T) TopicPartition {
			return TopicPartition{rapid.StringMatching(`[a-zA-Z0-9._-]{1,20}`).Draw(t, "topic"), rapid.Int32Min(0).Draw(t, "partition")}
		}), rapid.Int64()).Draw(t, "offsets")
		got, err := parseOffsets(formatOffsets(want))
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("%v became %v, %v", want, got, err)
		}
	})
}

func TestMalformedEpochsNameFileAndLine(t *testing.T) {
	for contents, line := range map[string]int{
		"0\n1\n0\n": 3, "0\n1\n0 0 0\n": 3, "0\n1\n-1 0\n": 3, "0\n1\n0 -1\n": 3, "0\n2\n0 0\nx 1\n": 4, "2\n": 1,
	} {
		_, err := ReadEpochs(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, line)
	}
}

func TestMalformedPartitionMetadataNamesFileAndLine(t *testing.T) {
	for contents, line := range map[string]int{
		"":                           1,
		"version: 1\ntopic_id: x":    1,
		"version 0\ntopic_id: x":     1,
		"topic_id: x\nversion: 0":    1,
		"version: 0\n":               2,
		"version: 0\ntopic_id: abc":  2,
		"version: 0\ntopic_id:":      2,
		"version: 0\nid: 0bOxrPmpTA": 2,
		"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA": 2,
	} {
		_, err := ReadPartitionMetadata(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, line)
	}
}

func TestMalformedQuorumStateNamesFileAndLine(t *testing.T) {
	for contents, line := range map[string]int{
		``:                   1,
		"{\n\"leaderId\":1,": 2,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1}`:                                                                            1,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":2}`:                                                           1,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}`:                                                           1,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"x","data_version":1}`:                                    1,
		`{"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`:                            1,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":0}`:                                                           1,
		`{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{}],"data_version":0}`:     1,
		"{\n\"leaderId\":\"one\",\"leaderEpoch\":1,\"votedId\":-1,\"data_version\":1}":                                           2,
		`{"leaderId":3000000000,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`:      1,
		`{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}{"leaderId":2}`: 1,
	} {
		_, err := ReadQuorumState(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, line)
	}
}

func TestUnknownFieldsOfAQuorumStateArePassedOver(t *testing.T) {
	s, err := parseQuorumState([]byte(`{"leaderId":1,"future":{"a":[1]},"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`))
	if err != nil || s.LeaderEpoch != 4 {
		t.Fatal(s, err)
	}
}

func TestQuorumStateWithoutVotersListIsRead(t *testing.T) {
	s, err := parseQuorumState([]byte(`{"clusterId":"a\"b","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":7,"currentVoters":null,"data_version":0}`))
	if err != nil || s.CurrentVoters != nil || s.AppliedOffset != 7 || s.ClusterID != `a"b` {
		t.Fatalf("%+v %v", s, err)
	}
	again, err := parseQuorumState(formatQuorumState(s))
	if err != nil || again.ClusterID != s.ClusterID {
		t.Fatalf("%+v %v", again, err)
	}
}

func TestMalformedCleanShutdownFileIsRefused(t *testing.T) {
	for _, contents := range []string{``, `{}`, `{"version":0}`, `{"brokerEpoch":"14"}`, `[14]`} {
		epoch, err := ReadCleanShutdown(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, 1)
		if epoch != -1 {
			t.Fatal(epoch)
		}
	}
}

func TestDeletedCleanShutdownFileStaysDeleted(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d"))
	must(t, m.SyncDir("/"))
	must(t, WriteCleanShutdown(m, "/d/f", 5))
	must(t, DeleteCleanShutdown(m, "/d", "/d/f"))
	for seed := range uint64(50) {
		if ok, _ := vfs.Exists(m.Crash(seed), "/d/f"); ok {
			t.Fatalf("seed %d brings it back", seed)
		}
	}
	if err := DeleteCleanShutdown(m, "/d", "/d/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestEveryWriterIsAtomicAndDurable cuts the power before every step of every writer.
func TestEveryWriterIsAtomicAndDurable(t *testing.T) {
	writers := map[string]func(fsys vfs.FS, n int) error{
		"offsets": func(f vfs.FS, n int) error {
			return WriteOffsets(f, "/d/f", map[TopicPartition]int64{{"t", 0}: int64(n)})
		},
		"meta": func(f vfs.FS, n int) error {
			return WriteMetaProperties(f, "/d/f", MetaProperties{Version: 1, NodeID: int32(n)}, time.Now())
		},
		"quorum": func(f vfs.FS, n int) error { return WriteQuorumState(f, "/d/f", QuorumState{LeaderID: int32(n)}) },
		"clean":  func(f vfs.FS, n int) error { return WriteCleanShutdown(f, "/d/f", int64(n)) },
	}
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			must(t, m.MkdirAll("/d"))
			must(t, m.SyncDir("/"))
			must(t, write(m, 1))
			before, err := vfs.ReadFile(m, "/d/f")
			must(t, err)
			var after [][]byte
			m.OnOp(func(int64, vfs.Op) {
				for seed := range uint64(20) {
					b, err := vfs.ReadFile(m.Crash(seed), "/d/f")
					must(t, err)
					after = append(after, b)
				}
			})
			must(t, write(m, 2))
			m.OnOp(nil)
			now, err := vfs.ReadFile(m, "/d/f")
			must(t, err)
			for _, b := range after {
				if !slices.Equal(b, before) && !slices.Equal(b, now) {
					t.Fatalf("a crash leaves %q", b)
				}
			}
			if b, err := vfs.ReadFile(m.Crash(0), "/d/f"); err != nil || !slices.Equal(b, now) {
				t.Fatalf("lost after it was written: %q, %v", b, err)
			}
		})
	}
}

func TestPartitionsAreNamedAndOrderedLikeTheirDirectories(t *testing.T) {
	p := TopicPartition{"a-b", 10}
	if fmt.Sprint(p) != "a-b-10" {
		t.Fatal(p)
	}
	if p.Compare(TopicPartition{"a-b", 9}) <= 0 || p.Compare(TopicPartition{"b", 0}) >= 0 || p.Compare(p) != 0 {
		t.Fatal("order")
	}
}
