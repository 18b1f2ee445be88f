package storage

import (
	"strings"
	"testing"
)

const hex32 = "0123456789abcdef0123456789abcdef"

func TestDirectoryNamesAreTakenForWhatTheyAre(t *testing.T) {
	for name, want := range map[string]struct {
		p    TopicPartition
		kind DirKind
	}{
		"t-0":                             {TopicPartition{Topic: "t", Partition: 0}, DirCurrent},
		"a-b.c_d-12":                      {TopicPartition{Topic: "a-b.c_d", Partition: 12}, DirCurrent},
		"__consumer_offsets-49":           {TopicPartition{Topic: "__consumer_offsets", Partition: 49}, DirCurrent},
		"t-0." + hex32 + "-delete":        {TopicPartition{Topic: "t", Partition: 0}, DirDelete},
		"t-0." + hex32 + "-future":        {TopicPartition{Topic: "t", Partition: 0}, DirFuture},
		"a.b-3." + hex32 + "-stray":       {TopicPartition{Topic: "a.b", Partition: 3}, DirStray},
		"x-delete-1":                      {TopicPartition{Topic: "x-delete", Partition: 1}, DirCurrent},
		"x-0." + hex32 + "-future-1":      {TopicPartition{Topic: "x-0." + hex32 + "-future", Partition: 1}, DirCurrent},
		strings.Repeat("t", 249) + "-0":   {TopicPartition{Topic: strings.Repeat("t", 249), Partition: 0}, DirCurrent},
		"--1":                             {TopicPartition{Topic: "-", Partition: 1}, DirCurrent},
		"t-2147483647":                    {TopicPartition{Topic: "t", Partition: 1<<31 - 1}, DirCurrent},
		"t.x-0." + hex32[:32] + "-future": {TopicPartition{Topic: "t.x", Partition: 0}, DirFuture},
	} {
		p, kind, ok := ParseDirName(name)
		if !ok || p != want.p || kind != want.kind {
			t.Errorf("%s: %v %v %v", name, p, kind, ok)
		}
	}
	for _, name := range []string{
		"", "lost+found", "t", "t-", "-0", "t-x", "t--", "t-+1", "t-2147483648", "t-0-delete", "t-0." + hex32[:31] + "-delete",
		"t-0." + strings.ToUpper(hex32) + "-delete", "t.0." + hex32 + "-delete", "a b-0", ".-0", "..-0", "ü-0",
		strings.Repeat("t", 250) + "-0", "t-0.tmp", "remote-log-index-cache",
	} {
		if p, kind, ok := ParseDirName(name); ok {
			t.Errorf("%q is taken for %v %v", name, p, kind)
		}
	}
}

func TestGeneratedNamesAreUniqueFitAndParse(t *testing.T) {
	long := TopicPartition{Topic: strings.Repeat("t", 249), Partition: 12}
	for _, kind := range []DirKind{DirFuture, DirDelete, DirStray} {
		short := TopicPartition{Topic: "t", Partition: 3}
		if p, k, ok := ParseDirName(dirName(short, kind)); !ok || p != short || k != kind {
			t.Errorf("%v: %v %v %v", kind, p, k, ok)
		}
		if dirName(short, kind) == dirName(short, kind) {
			t.Error("not unique")
		}
		n := len(dirName(long, kind))
		if kind == DirFuture && n != 249+3+33+7 || kind != DirFuture && n != 255 {
			t.Errorf("%v: %d bytes", kind, n)
		}
	}
	if dirName(long, DirCurrent) != long.String() {
		t.Error("the current replica's directory is TOPIC-PARTITION")
	}
}

func FuzzParseDirName(f *testing.F) {
	f.Add("t-0." + hex32 + "-delete")
	f.Add("t-0")
	f.Fuzz(func(t *testing.T, name string) {
		p, kind, ok := ParseDirName(name)
		if !ok {
			return
		}
		if kind == DirCurrent && !strings.HasPrefix(name, p.Topic+"-") {
			t.Fatalf("%q gives %v", name, p)
		}
		if again, k, ok := ParseDirName(dirName(p, kind)); !ok || k != kind || len(p.Topic) < 200 && again != p {
			t.Fatalf("%q gives %v, which gives %v", name, p, again)
		}
	})
}
