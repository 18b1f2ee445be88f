package kraft

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

const testClusterID = "B4CbMKSRTNSA3xNRIaMrFA"

// formatTool runs the storage tool's commands on a file system in memory, with the property files of the scripts:
// st (static voters), dyn (bootstrap servers), br (broker only).
type formatTool struct {
	fs vfs.FS
}

func (f *formatTool) formatter(d *datadriven.TestData) *Formatter {
	out := &Formatter{
		FS: f.fs, NodeID: 1, ClusterID: testClusterID, LogDirs: []string{"/d1", "/d2"}, MetadataDir: "/d1",
		Controller: true, HasStaticVoters: true, ListenerName: "CONTROLLER",
		AdvertisedController: quorum.Endpoint{Host: "localhost", Port: 22093},
		Now:                  func() time.Time { return time.UnixMilli(1700000000000) },
	}
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "props":
			out.Controller, out.HasStaticVoters = value != "br", value == "st"
		case "t":
			out.ClusterID = value
		case "id":
			id, _ := strconv.Atoi(value)
			out.NodeID = int32(id)
		case "g":
			out.IgnoreFormatted = true
		case "r":
			out.ReleaseVersion = value
		case "f":
			out.Features = append(out.Features, strings.ReplaceAll(value, ":", "="))
		case "s":
			out.Standalone = true
		case "n":
			out.NoInitialControllers = true
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
		switch kind, value, _ := strings.Cut(line, " "); kind {
		case "-S":
			out.Scram = append(out.Scram, value)
		case "-I":
			out.InitialControllers = value
		}
	}
	return out
}

func (f *formatTool) run(d *datadriven.TestData) string {
	var out bytes.Buffer
	var err error
	switch d.Cmd {
	case "format":
		err = f.formatter(d).Run(&out)
	case "info":
		var ok bool
		if ok, err = StorageInfo(f.fs, []string{"/d2", "/d1"}, &out); !ok {
			fmt.Fprintln(&out, "rc=1")
		}
	case "version-mapping":
		release := ""
		if len(d.CmdArgs) > 0 {
			release = d.CmdArgs[0].Key
		}
		err = VersionMapping(release, &out)
	case "feature-dependencies":
		err = FeatureDependencies(strings.Fields(d.Input), &out)
	case "reset":
		f.fs = vfs.NewMem()
	case "broken-meta":
		err = vfs.WriteFile(f.fs, "/d1/meta.properties", []byte("version=9\n"))
	case "files":
		for _, dir := range []string{"/d1", "/d1/" + quorum.DirName, "/d2"} {
			entries, err := f.fs.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, e := range entries {
				if info, err := e.Info(); err == nil && !e.IsDir() {
					fmt.Fprintf(&out, "%s %o\n", filepath.Join(dir, e.Name()), info.Mode().Perm())
				}
			}
		}
	}
	if err != nil {
		if _, ok := errors.AsType[*FormatError](err); !ok {
			return "unexpected error: " + err.Error()
		}
		fmt.Fprintln(&out, err.Error())
		fmt.Fprintln(&out, "rc=1")
	}
	return out.String()
}

func TestFormatToolSaysWhatKafkaSays(t *testing.T) {
	tool := &formatTool{fs: vfs.NewMem()}
	datadriven.RunTest(t, "testdata/format.txt", func(_ *testing.T, d *datadriven.TestData) string { return tool.run(d) })
}

// masked blanks what depends on the time of formatting: timestamps and checksums of the batches.
func masked(t *testing.T, file []byte) []byte {
	t.Helper()
	out := bytes.Clone(file)
	for at := 0; at < len(out); {
		b, rest, err := record.Next(out[at:])
		if err != nil {
			t.Fatalf("batch at %d: %v", at, err)
		}
		size := len(out) - at - len(rest)
		clear(out[at+17 : at+21])
		clear(out[at+27 : at+43])
		at += size
		_ = b
	}
	return out
}

// checkpointAs formats and returns the bootstrap checkpoint.
func checkpointAs(t *testing.T, f Formatter) []byte {
	t.Helper()
	f.FS = vfs.NewMem()
	f.NodeID, f.ClusterID, f.Controller = 1, testClusterID, true
	f.LogDirs, f.MetadataDir, f.ListenerName = []string{"/d"}, "/d", "CONTROLLER"
	if err := f.Run(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	got, err := vfs.ReadFile(f.FS, "/d/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFormattedCheckpointHasKafkasBytes(t *testing.T) {
	tests := []struct {
		golden string
		// headerMillis is the time in the golden's snapshot header.
		headerMillis int64
		format       Formatter
	}{
		{"standalone-scram", 1795981512022, Formatter{
			InitialControllers: "1@localhost:39493:11xvnzoRSzmcv9kdYnSrOg",
			Scram:              []string{`SCRAM-SHA-256=[name=admin,password=admin-secret,salt="MWl1cXpzdzd3Z2Q3MjQ1djgyNzh1eDA4MXg="]`},
		}},
		{"static", 0, Formatter{HasStaticVoters: true}},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			want, err := os.ReadFile("testdata/formatted/" + tt.golden + ".checkpoint")
			if err != nil {
				t.Fatal(err)
			}
			at := headerTimestamp(t, want)
			tt.format.Now = func() time.Time { return time.UnixMilli(at) }
			if tt.headerMillis != 0 && at != tt.headerMillis {
				t.Fatalf("golden header has time %d", at)
			}
			got := checkpointAs(t, tt.format)
			if !bytes.Equal(masked(t, got), masked(t, want)) {
				t.Errorf("got\n%x\nwant\n%x", masked(t, got), masked(t, want))
			}
		})
	}
}

// headerTimestamp reads the last contained log timestamp of a snapshot's first record.
func headerTimestamp(t *testing.T, file []byte) int64 {
	t.Helper()
	b, _, err := record.Next(file)
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range b.Records(record.Limits{MaxDecompressedBytes: 1 << 20}) {
		if err != nil {
			t.Fatal(err)
		}
		var v int64
		for _, x := range rec.Value[2:10] {
			v = v<<8 | int64(x)
		}
		return v
	}
	t.Fatal("no header record")
	return 0
}

func TestFormatGivesEachDirectoryAnIDOfItsOwn(t *testing.T) {
	fs := vfs.NewMem()
	f := Formatter{
		FS: fs, NodeID: 7, ClusterID: testClusterID, LogDirs: []string{"/a", "/b"}, MetadataDir: "/m",
		Controller: true, ListenerName: "CONTROLLER", InitialControllers: "7@h:9:JEXY6aqzQY-32P5TStzaFg",
	}
	if err := f.Run(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	ids := make(map[[16]byte]string)
	for _, dir := range []string{"/a", "/b", "/m"} {
		p, err := checkpoint.ReadMetaProperties(fs, dir+"/meta.properties")
		if err != nil {
			t.Fatal(err)
		}
		if p.NodeID != 7 || p.ClusterID != testClusterID || p.Version != 1 {
			t.Errorf("%s: %+v", dir, p)
		}
		if other, ok := ids[p.DirectoryID]; ok {
			t.Errorf("%s has the id of %s", dir, other)
		}
		ids[p.DirectoryID] = dir
	}
	want, _ := protocol.ParseUUID("JEXY6aqzQY-32P5TStzaFg")
	if ids[want] != "/m" {
		t.Errorf("the voter's directory id is that of %q, not of the metadata directory", ids[want])
	}
}
