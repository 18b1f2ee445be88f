package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// Decoder says what the records of a log are.
type Decoder int8

// The decoders.
const (
	NoDecoder       Decoder = iota
	MetadataDecoder         // __cluster_metadata
	OffsetsDecoder          // __consumer_offsets
	TxnDecoder              // __transaction_state
	ShareDecoder            // __share_group_state
	RemoteDecoder           // __remote_log_metadata
	PlainDecoder            // keys and values as Key and Value say (--print-data-log)
)

// DumpOptions are the options of kafka-dump-log.sh that Dump has.
type DumpOptions struct {
	FS   vfs.FS
	Out  io.Writer
	Errs io.Writer // progress of long files; nil for none

	// Deep prints records, not only batches; a Decoder implies it.
	Deep    bool
	Decoder Decoder
	// Key and Value say how PlainDecoder prints them: as text by default.
	Key, Value Plain
	// JSON prints one object a line instead of Kafka's text.
	JSON bool
	// VerifyOnly checks indexes without printing them; SanityOnly does what a start of the broker does.
	VerifyOnly, SanityOnly bool
	// SkipMetadata prints of records only key and payload, and no control records.
	SkipMetadata bool
	// MaxBytes bounds what is read of a log; 0 for everything.
	MaxBytes int64
	// MaxDecompressedBytes bounds the payload of a batch; 0 for the default.
	MaxDecompressedBytes int64
}

// dumper prints one run.
type dumper struct {
	DumpOptions
	w *bufio.Writer
	// problems are told at the end: what the files hold that they should not.
	problems []problem
}

// problem is a finding in a file.
type problem struct{ title, detail string }

// ErrProblems says that a file holds what it should not; the findings have been printed.
var ErrProblems = errors.New("files with problems")

// Dump prints the files one after the other. Files that are not what their names say are reported and the others go
// on; the error then is ErrProblems.
func Dump(files []string, o DumpOptions) error {
	d := &dumper{DumpOptions: o, w: bufio.NewWriterSize(o.Out, 64<<10)}
	if d.Decoder != NoDecoder {
		d.Deep = true
	}
	for _, file := range files {
		if !d.JSON {
			d.printf("Dumping %s\n", file)
		}
		if err := d.file(file); err != nil {
			d.found("Cannot read "+file, err.Error())
		}
	}
	for i, p := range d.problems {
		if i == 0 || p.title != d.problems[i-1].title {
			d.printf("%s\n", p.title)
		}
		d.printf("  %s\n", p.detail)
	}
	if err := d.w.Flush(); err != nil {
		return err
	}
	if len(d.problems) > 0 {
		return ErrProblems
	}
	return nil
}

// printf writes to the buffer, whose error shows at the flush.
func (d *dumper) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.w, format, args...) }

func (d *dumper) found(title, detail string) {
	d.problems = append(d.problems, problem{title: title, detail: detail})
}

// file prints one file by the kind that its name tells.
func (d *dumper) file(path string) error {
	name := filepath.Base(path)
	for suffix, show := range map[string]func(string) error{
		".log": d.log, ".checkpoint": d.log, ".index": d.offsetIndex, ".timeindex": d.timeIndex,
		".txnindex": d.txnIndex, ".snapshot": d.producers,
	} {
		if strings.HasSuffix(name, suffix) {
			return show(path)
		}
	}
	return d.text(path)
}

// baseOffset is the offset that a segment file's name begins with.
func baseOffset(path string) (int64, error) {
	offset, _, ok := segment.ParseFileName(filepath.Base(path))
	if !ok {
		return 0, fmt.Errorf("%s is not named after an offset", filepath.Base(path))
	}
	return offset, nil
}

// sibling is the path of another file of the same segment.
func sibling(path string, base int64, suffix string) string {
	return segment.FilePath(filepath.Dir(path), base, suffix)
}

// read returns a whole file.
func (d *dumper) read(path string) ([]byte, error) { return vfs.ReadFile(d.FS, path) }
