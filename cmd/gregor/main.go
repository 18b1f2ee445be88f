// Command gregor is a Kafka broker in one binary.
//
//	gregor start [server.properties] [--override key=value]...
//	gregor format --cluster-id ID --config server.properties ...
//	gregor random-uuid
//	gregor doctor [server.properties] [--log-dirs DIR,...]
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	err := newRoot().Execute()
	var status errStatus
	switch {
	case err == nil:
		return
	case errors.As(err, &status):
		os.Exit(int(status))
	}
	fmt.Fprintln(os.Stderr, "gregor: "+strings.ReplaceAll(err.Error(), "\n", "\ngregor: "))
	os.Exit(1)
}

// errStatus is the status to end with when everything has been said already.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// errSilent is a failure that has been told already.
const errSilent = errStatus(1)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "gregor",
		Short:         "A Kafka broker in one binary",
		Long:          "Gregor serves Kafka's clients and tools on Kafka's own configuration and data directories.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newStart(), newFormat(), newRandomUUID(), newInfo(), newVersionMapping(), newFeatureDependencies(), newDump(), newDoctor())
	return root
}

// stamped is the version that the Makefile writes into the binary.
var stamped string

// version is what the binary was stamped with, or else the module's version and commit as the Go toolchain recorded
// them.
func version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	v, revision, modified := info.Main.Version, "", ""
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-dirty"
		}
	}
	if v != "devel" {
		return v
	}
	return v + revision + modified
}
