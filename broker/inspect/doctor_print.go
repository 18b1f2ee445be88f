package inspect

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// scan visits the batches of a file from a position on, until visit answers false. The error is that of a batch that
// is not one, and visit has seen all before it. It tells of its progress through long files.
func (d *doctor) scan(path string, from int64, visit func(b record.Batch, at int64) bool) error {
	f, err := d.FS.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return err
	}
	p := &progress{d: &dumper{DumpOptions: DumpOptions{Errs: d.Errs}}, path: path, size: size, last: from}
	for at := from; at < size; {
		b, err := readBatch(f, at, size)
		if err != nil {
			return err
		}
		if !visit(b, at) {
			return nil
		}
		at += int64(b.SizeBytes())
		p.reached(at)
	}
	return nil
}

// zeros tells whether a file holds only zeros from a position to its end.
func (d *doctor) zeros(path string, from, size int64) bool {
	f, err := d.FS.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	zeros, err := vfs.OnlyZeros(f, from, size)
	return zeros && err == nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out)
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // the error shows at the flush
	for _, d := range r.Dirs {
		d.write(printf)
	}
	if r.Metadata != nil {
		r.Metadata.write(printf)
	}
	for _, f := range r.Findings {
		printf("%s: %s: %s\n", f.Severity, f.Where, f.Message)
	}
	printf("%s\n", r.Verdict)
	return w.Flush()
}

func (d *DirReport) write(printf func(format string, args ...any)) {
	printf("%s\n", d.Path)
	if !d.Formatted {
		printf("  not formatted\n")
		return
	}
	printf("  node %d of cluster %s, directory.id %s\n", d.NodeID, d.ClusterID, d.DirectoryID)
	stopped := "not clean"
	if d.Clean {
		stopped = fmt.Sprintf("clean, with the broker epoch %d", d.BrokerEpoch)
	}
	printf("  last stop: %s\n", stopped)
	printf("  %s, %s, %d bytes", plural(d.Partitions, "partition"), plural(d.Segments, "segment"), d.SizeBytes)
	if formats := sortedFormats(d.Formats); formats != "" {
		printf(" (%s)", formats)
	}
	printf("\n")
	for _, x := range []struct {
		n    int
		what string
	}{{d.Future, "on their way here"}, {d.Deleted, "to be deleted"}, {d.Stray, "set aside as stray"}} {
		if x.n > 0 {
			printf("  %s %s\n", plural(x.n, "replica"), x.what)
		}
	}
	if !d.Clean {
		printf("  recovery would read %d bytes\n", d.RecoveryBytes)
	}
}

func (m *MetadataReport) write(printf func(format string, args ...any)) {
	printf("%s\n", m.Path)
	printf("  metadata.version %s, kraft.version %d, log end %d, snapshot %s\n", m.MetadataVersion, m.KRaftVersion, m.LogEndOffset, or(m.Snapshot, "none"))
	var features []string
	for _, f := range sortedKeys(m.Features) {
		features = append(features, fmt.Sprintf("%s=%d", f, m.Features[f]))
	}
	printf("  features: %s\n", or(strings.Join(features, ", "), "none"))
	printf("  %s, %s with %s, %d of them here\n", plural(m.Brokers, "broker"), plural(m.Topics, "topic"), plural(m.Partitions, "partition"), m.Local)
	printf("  internal topics: %s\n", or(strings.Join(m.InternalTopics, ", "), "none"))
	printf("  %s, %s, %s, %s\n", plural(m.ACLs, "access rule"), plural(m.Quotas, "quota"), plural(m.ScramUsers, "SCRAM credential"), plural(m.Tokens, "delegation token"))
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
