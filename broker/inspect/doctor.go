package inspect

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gregor/broker/config"
	"gregor/kraft/image"
	"gregor/storage/vfs"
)

// Severity says how much a finding matters.
type Severity int8

// The severities. Their numbers are the exit statuses of `gregor doctor`.
const (
	// Note is something that a start would do and that is as it should be.
	Note Severity = iota
	// Suspicious is something that a start copes with but that an operator should know.
	Suspicious
	// Broken keeps the node, a directory or a partition from being served, or is lost data.
	Broken
)

func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// MarshalText makes severities readable in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that was found, and what a start would do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Where is a file, a directory or a place in the configuration.
	Where   string `json:"where"`
	Message string `json:"message"`
}

// DoctorOptions say what to examine.
type DoctorOptions struct {
	FS vfs.FS
	// Config is the node's; nil when only directories are examined. Warnings and ConfigError are what loading it gave.
	Config      *config.Config
	Warnings    []config.Warning
	ConfigError error
	// Dirs are log directories beside those of the Config.
	Dirs []string
	// Deep reads every batch of every segment and checks the indexes against them; else only what a start reads.
	Deep bool
	// Errs gets progress on long files; nil for none.
	Errs io.Writer
}

// DirReport is what was found in a log directory.
type DirReport struct {
	Path        string `json:"path"`
	ClusterID   string `json:"clusterId,omitempty"`
	NodeID      int32  `json:"nodeId"`
	DirectoryID string `json:"directoryId,omitempty"`
	Formatted   bool   `json:"formatted"`
	// Clean says that the last stop was clean; BrokerEpoch is the epoch of that time, -1 when not known.
	Clean       bool  `json:"cleanShutdown"`
	BrokerEpoch int64 `json:"brokerEpoch"`
	Metadata    bool  `json:"holdsMetadataLog"`
	// Partitions are the replicas in it; SizeBytes is what their segments take.
	Partitions int   `json:"partitions"`
	Segments   int   `json:"segments"`
	SizeBytes  int64 `json:"sizeBytes"`
	Future     int   `json:"futureReplicas"`
	Deleted    int   `json:"deletedReplicas"`
	Stray      int   `json:"strayReplicas"`
	// RecoveryBytes is what recovery would read after an unclean stop.
	RecoveryBytes int64 `json:"recoveryBytes"`
	// Formats counts the segments by the message format of their first batch.
	Formats map[string]int `json:"messageFormats,omitempty"`
}

// MetadataReport is the state that the metadata log describes.
type MetadataReport struct {
	Path            string           `json:"path"`
	Snapshot        string           `json:"snapshot,omitempty"`
	LogEndOffset    int64            `json:"logEndOffset"`
	KRaftVersion    int16            `json:"kraftVersion"`
	Leader          int32            `json:"leaderId"`
	LeaderEpoch     int32            `json:"leaderEpoch"`
	MetadataVersion string           `json:"metadataVersion"`
	Features        map[string]int16 `json:"features"`
	Brokers         int              `json:"brokers"`
	Topics          int              `json:"topics"`
	Partitions      int              `json:"partitions"`
	InternalTopics  []string         `json:"internalTopics"`
	Local           int              `json:"replicasOfThisNode"`
	ACLs            int              `json:"acls"`
	Quotas          int              `json:"quotas"`
	ScramUsers      int              `json:"scramCredentials"`
	Tokens          int              `json:"delegationTokens"`
}

// Report is the result of Examine.
type Report struct {
	Dirs     []*DirReport    `json:"directories"`
	Metadata *MetadataReport `json:"metadata,omitempty"`
	Findings []Finding       `json:"findings"`
	// Verdict says in a sentence what a start would do.
	Verdict string `json:"verdict"`
	Status  int    `json:"status"`
}

// doctor is one examination.
type doctor struct {
	DoctorOptions
	report Report
	image  *image.Image // nil without a readable metadata log
	nodeID int32        // -1 when not known
	seen   map[string]string
}

// Examine looks at a node's configuration and log directories, without changing anything, and says what a start would
// make of them.
func Examine(o DoctorOptions) *Report {
	d := &doctor{DoctorOptions: o, nodeID: -1, seen: map[string]string{}}
	d.report.Findings = []Finding{}
	metadataDir := d.config()
	for _, dir := range d.Dirs {
		if _, err := d.FS.ReadDir(filepath.Join(dir, metadataLogDir)); err == nil && metadataDir == "" {
			metadataDir = dir
		}
	}
	readable := d.directories(metadataDir)
	if metadataDir != "" {
		d.metadata(filepath.Join(metadataDir, metadataLogDir))
	}
	for _, r := range readable {
		d.logDir(r)
	}
	d.missing(readable)
	d.conclude()
	return &d.report
}

// add notes a finding.
func (d *doctor) add(s Severity, where, format string, args ...any) {
	// Errors of files begin with the path as a rule.
	message := strings.TrimPrefix(fmt.Sprintf(format, args...), where+": ")
	d.report.Findings = append(d.report.Findings, Finding{Severity: s, Where: where, Message: message})
}

// config looks at the configuration and returns the directory of the metadata log, if it says which.
func (d *doctor) config() string {
	for _, w := range d.Warnings {
		d.add(Suspicious, w.Where, "%s: %s", w.Key, w.Message)
	}
	if d.ConfigError != nil {
		d.add(Broken, "configuration", "%v", d.ConfigError)
	}
	if d.Config == nil {
		return ""
	}
	d.nodeID = d.Config.Node.ID
	metadataDir := d.Config.Metadata.Dir
	if metadataDir == "" {
		metadataDir = d.Config.Storage.Dirs[0]
	}
	d.Dirs = append(slices.Clone(d.Config.Storage.Dirs), d.Dirs...)
	if !slices.Contains(d.Dirs, metadataDir) {
		d.Dirs = append(d.Dirs, metadataDir)
	}
	return metadataDir
}

// conclude derives the status and the verdict from the findings, and puts the worst first.
func (d *doctor) conclude() {
	worst := Note
	counts := map[Severity]int{}
	for _, f := range d.report.Findings {
		worst = max(worst, f.Severity)
		counts[f.Severity]++
	}
	slices.SortStableFunc(d.report.Findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	d.report.Status = int(worst)
	switch worst {
	case Note:
		d.report.Verdict = "Gregor would start and serve everything that is here."
	case Suspicious:
		d.report.Verdict = fmt.Sprintf("Gregor would start; %s.", plural(counts[Suspicious], "warning"))
	case Broken:
		d.report.Verdict = fmt.Sprintf("Something would not be served: %s, %s.", plural(counts[Broken], "error"), plural(counts[Suspicious], "warning"))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if before, ok := strings.CutSuffix(what, "y"); ok {
		return fmt.Sprintf("%d %sies", n, before)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
