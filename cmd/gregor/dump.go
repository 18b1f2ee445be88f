package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gregor/broker/inspect"
	"gregor/storage/vfs"
)

type dumpFlags struct {
	files                                []string
	deep, printData, json                bool
	verifyOnly, sanityOnly, skipMetadata bool
	offsets, transactions, share         bool
	metadata, remote                     bool
	keyClass, valueClass                 string
	maxBytes, maxMessageBytes            int64
}

func newDump() *cobra.Command {
	var f dumpFlags
	c := &cobra.Command{
		Use:   "dump [--files] FILE...",
		Short: "Print segments, indexes, snapshots and checkpoints, as kafka-dump-log.sh does",
		Long: `Reads files of a log directory offline and prints what they hold: record batches
and records, offset, time and transaction indexes, producer snapshots, snapshots of
the metadata log, checkpoints. Findings are printed last, and the exit status is then 1.`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.OutOrStdout(), args) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&f.files, "files", nil, "comma separated files; they can also stand alone")
	fs.BoolVar(&f.deep, "deep-iteration", false, "print records, not only batches")
	fs.BoolVar(&f.printData, "print-data-log", false, "print keys and values as text")
	fs.BoolVar(&f.json, "json", false, "print a JSON object a line for batches and records")
	fs.BoolVar(&f.verifyOnly, "verify-index-only", false, "check indexes without printing them")
	fs.BoolVar(&f.sanityOnly, "index-sanity-check", false, "check indexes as a start of the broker does")
	fs.BoolVar(&f.skipMetadata, "skip-record-metadata", false, "print of records only key and payload, and no control records")
	fs.BoolVar(&f.offsets, "offsets-decoder", false, "the records are those of __consumer_offsets")
	fs.BoolVar(&f.transactions, "transaction-log-decoder", false, "the records are those of __transaction_state")
	fs.BoolVar(&f.share, "share-group-state-decoder", false, "the records are those of __share_group_state")
	fs.BoolVar(&f.metadata, "cluster-metadata-decoder", false, "the records are those of __cluster_metadata")
	fs.BoolVar(&f.remote, "remote-log-metadata-decoder", false, "the records are those of __remote_log_metadata")
	fs.StringVar(&f.keyClass, "key-decoder-class", "", "what keys are: StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder; implies --print-data-log")
	fs.StringVar(&f.valueClass, "value-decoder-class", "", "what values are; as above")
	fs.Int64Var(&f.maxBytes, "max-bytes", 0, "read only so many bytes of each log; 0 for all")
	fs.Int64Var(&f.maxMessageBytes, "max-message-size", 0, "the largest batch, decompressed; 0 for the default")
	return c
}

func (f *dumpFlags) decoder() (inspect.Decoder, error) {
	decoder, n := inspect.NoDecoder, 0
	for _, x := range []struct {
		set bool
		d   inspect.Decoder
	}{{f.offsets, inspect.OffsetsDecoder}, {f.transactions, inspect.TxnDecoder}, {f.share, inspect.ShareDecoder}, {f.metadata, inspect.MetadataDecoder}, {f.remote, inspect.RemoteDecoder}} {
		if x.set {
			decoder, n = x.d, n+1
		}
	}
	if n > 1 {
		return decoder, errors.New("only one decoder can be used at a time")
	}
	if n == 0 && (f.printData || f.skipMetadata || f.keyClass != "" || f.valueClass != "") {
		decoder = inspect.PlainDecoder
	}
	return decoder, nil
}

// plain returns what keys and values are.
func (f *dumpFlags) plain() (key, value inspect.Plain, err error) {
	if f.keyClass != "" {
		if key, err = inspect.ParsePlain(f.keyClass); err != nil {
			return key, value, fmt.Errorf("--key-decoder-class: %w", err)
		}
	}
	if f.valueClass != "" {
		if value, err = inspect.ParsePlain(f.valueClass); err != nil {
			return key, value, fmt.Errorf("--value-decoder-class: %w", err)
		}
	}
	return key, value, nil
}

func (f *dumpFlags) run(out io.Writer, args []string) error {
	decoder, err := f.decoder()
	if err != nil {
		return err
	}
	key, value, err := f.plain()
	if err != nil {
		return err
	}
	files := append([]string{}, f.files...)
	for _, a := range args {
		files = append(files, strings.Split(a, ",")...)
	}
	if len(files) == 0 {
		return errors.New("no files to dump: name them, or use --files")
	}
	err = inspect.Dump(files, inspect.DumpOptions{
		FS: vfs.Real(), Out: out, Errs: os.Stderr, Deep: f.deep, Decoder: decoder, Key: key, Value: value, JSON: f.json, VerifyOnly: f.verifyOnly,
		SanityOnly: f.sanityOnly, SkipMetadata: f.skipMetadata, MaxBytes: f.maxBytes, MaxDecompressedBytes: f.maxMessageBytes,
	})
	if errors.Is(err, inspect.ErrProblems) {
		return errSilent
	}
	return err
}
