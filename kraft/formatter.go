package kraft

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gregor/kraft/controller"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// FormatError is a refusal of the format command, in the words of Kafka's kafka-storage tool.
type FormatError struct{ Message string }

// Error implements error.
func (e *FormatError) Error() string { return e.Message }

func formatError(format string, args ...any) error {
	return &FormatError{Message: fmt.Sprintf(format, args...)}
}

// Formatter prepares the log directories of a new node, as `kafka-storage.sh format` does: meta.properties in each,
// and on a controller the bootstrap checkpoint 0-0 in the metadata log.
type Formatter struct {
	FS        vfs.FS
	NodeID    int32
	ClusterID string
	// LogDirs are log.dirs; MetadataDir is metadata.log.dir, which need not be among them.
	LogDirs     []string
	MetadataDir string
	// Controller says whether the node has the controller role; HasStaticVoters whether controller.quorum.voters is
	// set.
	Controller      bool
	HasStaticVoters bool
	// ListenerName is the first of controller.listener.names; AdvertisedController is its address on this node, for
	// Standalone.
	ListenerName         string
	AdvertisedController quorum.Endpoint

	IgnoreFormatted      bool     // -g
	ReleaseVersion       string   // -r
	Features             []string // -f NAME=LEVEL
	Scram                []string // -S
	Standalone           bool     // -s
	InitialControllers   string   // -I
	NoInitialControllers bool     // -N

	// Now is the time in meta.properties and in the checkpoint.
	Now func() time.Time
}

// plan is what Run has worked out before it writes.
type plan struct {
	version metadata.MetadataVersion
	levels  map[string]int16
	voters  []quorum.Voter
	records []metadata.Record
	dirs    []string
	// properties are those of the directories that are formatted already.
	properties map[string]checkpoint.MetaProperties
	empty      []string
}

// Run formats and writes what it does to out. A refusal is a *FormatError.
func (f *Formatter) Run(out io.Writer) error {
	p, err := f.prepare()
	if err != nil {
		return err
	}
	if err := f.inspect(p, out); err != nil {
		return err
	}
	if len(p.empty) == 0 {
		_, err := fmt.Fprintln(out, "All of the log directories are already formatted.")
		return err
	}
	if _, err := fmt.Fprintln(out, "Bootstrap metadata: "+describeBootstrap(p.records, p.version)); err != nil {
		return err
	}
	for _, dir := range p.empty {
		if err := f.formatDir(p, dir, out); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks the arguments.
func (f *Formatter) prepare() (*plan, error) {
	if f.Now == nil {
		f.Now = time.Now
	}
	p := &plan{properties: make(map[string]checkpoint.MetaProperties)}
	var err error
	if p.voters, err = f.initialVoters(); err != nil {
		return nil, err
	}
	if f.Controller && !f.HasStaticVoters && p.voters == nil && !f.NoInitialControllers {
		return nil, formatError("Because controller.quorum.voters is not set on this controller, you must specify one " +
			"of the following: --standalone, --initial-controllers, or --no-initial-controllers.")
	}
	if p.levels, err = f.effectiveLevels(); err != nil {
		return nil, err
	}
	p.version = metadata.MetadataVersion(p.levels[metadata.FeatureMetadataVersion])
	if p.records, err = f.bootstrapRecords(p); err != nil {
		return nil, err
	}
	switch {
	case f.NodeID < 0:
		return nil, formatError("You must specify a valid non-negative node ID.")
	case f.ClusterID == "":
		return nil, formatError("You must specify the cluster id.")
	}
	p.dirs = slices.Clone(f.LogDirs)
	if f.MetadataDir != "" && !slices.Contains(p.dirs, f.MetadataDir) {
		p.dirs = append(p.dirs, f.MetadataDir)
	}
	slices.Sort(p.dirs)
	p.dirs = slices.Compact(p.dirs)
	if len(p.dirs) == 0 {
		return nil, formatError("You must specify at least one directory to format")
	}
	return p, nil
}

func (f *Formatter) initialVoters() ([]quorum.Voter, error) {
	if !f.Standalone && f.InitialControllers == "" {
		return nil, nil
	}
	if f.HasStaticVoters {
		return nil, formatError("You cannot specify controller.quorum.voters and format the node with " +
			"--initial-controllers or --standalone. If you want to use dynamic quorum, please remove " +
			"controller.quorum.voters and specify controller.quorum.bootstrap.servers instead.")
	}
	if f.InitialControllers != "" {
		voters, err := ParseVoters(f.InitialControllers, f.ListenerName)
		if err != nil {
			return nil, formatError("%s", err.Error())
		}
		return voters, nil
	}
	if !f.Controller {
		return nil, formatError("You can only use --standalone on a controller.")
	}
	e := f.AdvertisedController
	e.Name = f.ListenerName
	if e.Host == "" {
		e.Host = "localhost"
	}
	return []quorum.Voter{{
		Key:       quorum.ReplicaKey{ID: f.NodeID, DirectoryID: protocol.RandomUUID()},
		Endpoints: []quorum.Endpoint{e}, MaxKRaftVersion: 1,
	}}, nil
}

// dynamic says whether the quorum's voters are in the log.
func (f *Formatter) dynamic() bool {
	return f.Standalone || f.InitialControllers != "" || f.NoInitialControllers && !f.HasStaticVoters
}

// effectiveLevels gives the level of every feature: as asked, else the default of the release.
func (f *Formatter) effectiveLevels() (map[string]int16, error) {
	asked, err := f.askedLevels()
	if err != nil {
		return nil, err
	}
	version, err := f.releaseVersion(asked)
	if err != nil {
		return nil, err
	}
	levels := map[string]int16{metadata.FeatureMetadataVersion: int16(version)}
	for name, level := range asked {
		if name == metadata.FeatureMetadataVersion {
			continue
		}
		if _, ok := metadata.FeatureByName(name); !ok {
			return nil, formatError("Unsupported feature: %s. Supported features are: %s", name, featureNames())
		}
		levels[name] = level
	}
	for _, feature := range metadata.Features() {
		if feature.Name == metadata.FeatureKRaftVersion {
			if levels[feature.Name], err = f.kraftLevel(asked); err != nil {
				return nil, err
			}
		} else if _, ok := levels[feature.Name]; !ok {
			levels[feature.Name] = feature.DefaultLevel(version)
		}
	}
	for _, feature := range metadata.Features() {
		level := levels[feature.Name]
		i := slices.IndexFunc(feature.Levels, func(l metadata.FeatureLevel) bool { return l.Level == level })
		if i < 0 {
			return nil, formatError("No feature:%s with feature level %d", feature.Name, level)
		}
		if why := controller.DependencyProblem(feature.Name, feature.Levels[i], levels); why != "" {
			return nil, formatError("%s", why)
		}
	}
	return levels, nil
}

func featureNames() string {
	var names []string
	for _, f := range metadata.Features() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// askedLevels reads the --feature arguments.
func (f *Formatter) askedLevels() (map[string]int16, error) {
	out := make(map[string]int16)
	for _, arg := range f.Features {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, formatError("Can't parse feature=level string %s: equals sign not found.", arg)
		}
		level, err := strconv.ParseInt(strings.TrimSpace(text), 10, 16)
		if err != nil {
			return nil, formatError("Can't parse feature=level string %s: unable to parse %s as a short.", arg, text)
		}
		out[strings.TrimSpace(name)] = int16(level)
	}
	return out, nil
}

func (f *Formatter) releaseVersion(asked map[string]int16) (metadata.MetadataVersion, error) {
	level, ok := asked[metadata.FeatureMetadataVersion]
	switch {
	case ok && f.ReleaseVersion != "":
		return 0, formatError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
	case ok:
		if v := metadata.MetadataVersion(level); v.Valid() {
			return v, nil
		}
		return 0, formatError("No MetadataVersion with feature level %d. Valid feature levels are from %d to %d.",
			level, metadata.MinMetadataVersion, metadata.LatestMetadataVersion+1)
	case f.ReleaseVersion != "":
		return parseRelease(f.ReleaseVersion, metadata.LatestMetadataVersion.String())
	}
	return metadata.LatestMetadataVersion, nil
}

// parseRelease reads a release ("4.4") or a level's name ("4.4-IV2"), but no number.
func parseRelease(text, last string) (metadata.MetadataVersion, error) {
	if v, err := metadata.ParseMetadataVersion(text); err == nil && strings.Contains(text, ".") {
		return v, nil
	}
	var names []string
	for v := metadata.MinMetadataVersion; v <= metadata.LatestMetadataVersion; v++ {
		names = append(names, v.String())
	}
	if last != names[len(names)-1] {
		names = append(names, last)
	}
	return 0, formatError("Unknown metadata.version '%s'. Supported metadata.version are: %s", text,
		strings.Join(names, ", "))
}

// kraftLevel gives kraft.version: 1 when the voters are, or will be, in the log, else 0.
func (f *Formatter) kraftLevel(asked map[string]int16) (int16, error) {
	level, ok := asked[metadata.FeatureKRaftVersion]
	switch {
	case !ok && f.dynamic():
		return 1, nil
	case !ok:
		return 0, nil
	case level == 0 && f.dynamic():
		return 0, formatError("Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags " +
			"--standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, " +
			"try removing the --feature flag for kraft.version.")
	case level != 0 && !f.dynamic():
		return 0, formatError("Cannot set kraft.version to %d unless controller.quorum.voters is empty and one of the "+
			"flags --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers "+
			"support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing "+
			"controller.quorum.voters.", level)
	}
	return level, nil
}

// bootstrapRecords are what the first active controller of the cluster will write.
func (f *Formatter) bootstrapRecords(p *plan) ([]metadata.Record, error) {
	records := []metadata.Record{&metadata.FeatureLevelRecord{
		Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(p.version),
	}}
	for _, name := range slices.Sorted(maps.Keys(p.levels)) {
		if name == metadata.FeatureMetadataVersion || name == metadata.FeatureKRaftVersion || p.levels[name] == 0 {
			continue
		}
		records = append(records, &metadata.FeatureLevelRecord{Name: name, FeatureLevel: p.levels[name]})
	}
	if len(f.Scram) > 0 && !p.version.SupportsScram() {
		return nil, formatError("SCRAM is only supported in metadata.version %s or later.", metadata.MetadataVersion3_5IV2)
	}
	for _, arg := range f.Scram {
		r, err := parseScram(arg)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// inspect reads what the directories hold.
func (f *Formatter) inspect(p *plan, out io.Writer) error {
	var broken []string
	for _, dir := range p.dirs {
		path := filepath.Join(dir, checkpoint.MetaPropertiesFile)
		props, err := checkpoint.ReadMetaProperties(f.FS, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.empty = append(p.empty, dir)
			continue
		case err != nil:
			broken = append(broken, dir)
			continue
		}
		if err := checkIdentity(path, props, f.ClusterID, f.NodeID); err != nil {
			return err
		}
		p.properties[dir] = props
	}
	if !f.IgnoreFormatted && len(p.properties) > 0 {
		first := slices.Sorted(maps.Keys(p.properties))[0]
		return formatError("Log directory %s is already formatted. Use --ignore-formatted to ignore this directory and "+
			"format the others.", first)
	}
	for _, dir := range broken {
		if _, err := fmt.Fprintf(out, "I/O error trying to read log directory %s. Ignoring...\n", dir); err != nil {
			return err
		}
	}
	if len(broken) > 0 && len(p.empty) == 0 && len(p.properties) == 0 {
		return formatError("No available log directories to format.")
	}
	return nil
}

// checkIdentity compares a meta.properties with whose it must be.
func checkIdentity(path string, props checkpoint.MetaProperties, clusterID string, nodeID int32) error {
	if props.ClusterID != "" && props.ClusterID != clusterID {
		return formatError("Invalid cluster.id in: %s. Expected %s, but read %s", path, clusterID, props.ClusterID)
	}
	if props.NodeID >= 0 && props.NodeID != nodeID {
		return formatError("Stored node id %d doesn't match previous node id %d in %s. If you moved your data, make sure "+
			"your configured node id matches. If you intend to create a new node, you should remove all data in your "+
			"data directories.", props.NodeID, nodeID, path)
	}
	return nil
}

// formatDir formats one empty directory. meta.properties comes last: a directory without it is not formatted.
func (f *Formatter) formatDir(p *plan, dir string, out io.Writer) error {
	kind, id := f.directoryKind(p, dir)
	if _, err := fmt.Fprintf(out, "Formatting %s %s with metadata.version %s.\n", kind, dir, p.version); err != nil {
		return err
	}
	if err := f.FS.MkdirAll(dir); err != nil {
		return fmt.Errorf("format %s: %w", dir, err)
	}
	now := f.Now()
	if dir == f.MetadataDir && f.Controller {
		if err := f.writeBootstrap(p, dir, now); err != nil {
			return err
		}
	}
	props := checkpoint.MetaProperties{Version: 1, ClusterID: f.ClusterID, NodeID: f.NodeID, DirectoryID: id}
	path := filepath.Join(dir, checkpoint.MetaPropertiesFile)
	if err := checkpoint.WriteMetaProperties(f.FS, path, props, now); err != nil {
		return formatError("Error while writing meta.properties file %s: %s", dir, err.Error())
	}
	return nil
}

// directoryKind names a directory in the tool's output and gives its id.
func (f *Formatter) directoryKind(p *plan, dir string) (string, protocol.UUID) {
	switch {
	case dir != f.MetadataDir:
		return "data directory", protocol.RandomUUID()
	case p.voters == nil:
		return "metadata directory", protocol.RandomUUID()
	}
	for _, v := range p.voters {
		if v.Key.ID == f.NodeID {
			return "dynamic metadata voter directory", v.Key.DirectoryID
		}
	}
	return "dynamic metadata directory", protocol.RandomUUID()
}

func (f *Formatter) writeBootstrap(p *plan, dir string, now time.Time) error {
	voters, err := quorum.NewVoterSet(p.voters)
	if err != nil {
		return formatError("%s", err.Error())
	}
	return quorum.WriteBootstrap(f.FS, filepath.Join(dir, quorum.DirName), quorum.BootstrapOptions{
		KRaftVersion: p.levels[metadata.FeatureKRaftVersion], Voters: voters, NowMillis: now.UnixMilli(),
		Records: versioned(p.records, p.version),
	})
}

// versioned puts the version that a metadata.version writes to each record.
func versioned(records []metadata.Record, level metadata.MetadataVersion) []quorum.VersionedRecord {
	out := make([]quorum.VersionedRecord, len(records))
	for i, r := range records {
		out[i] = quorum.VersionedRecord{Record: r, Version: metadata.RecordVersion(r, level)}
	}
	return out
}
