package kraft

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// describeBootstrap prints bootstrap records as Kafka's tool does.
func describeBootstrap(records []metadata.Record, version metadata.MetadataVersion) string {
	var parts []string
	for _, rec := range records {
		switch r := rec.(type) {
		case *metadata.FeatureLevelRecord:
			parts = append(parts, fmt.Sprintf("ApiMessageAndVersion(FeatureLevelRecord(name='%s', featureLevel=%d) at version 0)",
				r.Name, r.FeatureLevel))
		case *metadata.UserScramCredentialRecord:
			parts = append(parts, fmt.Sprintf("ApiMessageAndVersion(UserScramCredentialRecord(name='%s', mechanism=%d, "+
				"salt=%s, storedKey=%s, serverKey=%s, iterations=%d) at version 0)", r.Name, r.Mechanism, javaBytes(r.Salt),
				javaBytes(r.StoredKey), javaBytes(r.ServerKey), r.Iterations))
		}
	}
	return fmt.Sprintf("BootstrapMetadata(records=[%s], metadataVersionLevel=%d, source=format command)",
		strings.Join(parts, ", "), version)
}

// javaBytes prints bytes as Java's Arrays.toString does, as signed numbers.
func javaBytes(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = strconv.Itoa(int(int8(x)))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// StorageInfo prints what the log directories hold, as `kafka-storage.sh info` does; ok is false when it found
// problems.
func StorageInfo(fsys vfs.FS, dirs []string, out io.Writer) (ok bool, err error) {
	dirs = slices.Compact(slices.Sorted(slices.Values(dirs)))
	if len(dirs) == 0 {
		_, err := fmt.Fprintln(out, "No directories specified.")
		return true, err
	}
	var found, problems []string
	var first *checkpoint.MetaProperties
	for _, dir := range dirs {
		info, err := fsys.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, dir+" does not exist")
			continue
		case err != nil || !info.IsDir():
			problems = append(problems, dir+" is not a directory")
			continue
		}
		found = append(found, dir)
		path := filepath.Join(dir, checkpoint.MetaPropertiesFile)
		props, err := checkpoint.ReadMetaProperties(fsys, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, dir+" is not formatted.")
		case err != nil:
			problems = append(problems, "Error loading "+path+": "+err.Error())
		case first == nil:
			first = &props
		case first.ClusterID != props.ClusterID:
			problems = append(problems, "Mismatched cluster IDs between storage directories.")
		case first.NodeID != props.NodeID:
			problems = append(problems, "Mismatched node IDs between storage directories.")
		}
	}
	if first != nil && first.Version == 0 {
		problems = append(problems, "The kafka configuration file appears to be for a cluster in KRaft mode, but the "+
			"directories are formatted for legacy mode.")
	}
	var b strings.Builder
	list(&b, found, "Found log directory:", "Found log directories:")
	if first != nil {
		fmt.Fprintf(&b, "Found metadata: {%s}\n\n", describeProperties(*first))
	}
	list(&b, problems, "Found problem:", "Found problems:")
	_, err = io.WriteString(out, b.String())
	return len(problems) == 0, err
}

func list(b *strings.Builder, items []string, one, many string) {
	if len(items) == 0 {
		return
	}
	title := many
	if len(items) == 1 {
		title = one
	}
	b.WriteString(title + "\n")
	for _, item := range items {
		b.WriteString("  " + item + "\n")
	}
	b.WriteString("\n")
}

func describeProperties(p checkpoint.MetaProperties) string {
	items := []string{"version=" + strconv.Itoa(p.Version)}
	if p.ClusterID != "" {
		items = append(items, "cluster.id="+p.ClusterID)
	}
	if id := protocol.UUID(p.DirectoryID); id != protocol.ZeroUUID {
		items = append(items, "directory.id="+id.String())
	}
	if p.NodeID >= 0 {
		key := "node.id="
		if p.Version == 0 {
			key = "broker.id="
		}
		items = append(items, key+strconv.Itoa(int(p.NodeID)))
	}
	slices.Sort(items)
	return strings.Join(items, ", ")
}

// toolFeatures is the order in which Kafka's tools list features.
var toolFeatures = []string{
	metadata.FeatureKRaftVersion, metadata.FeatureTransaction, metadata.FeatureGroup, metadata.FeatureELR,
	metadata.FeatureShare, metadata.FeatureStreams,
}

// VersionMapping prints the default feature levels of a release, "" for the newest, as `kafka-storage.sh
// version-mapping` does.
func VersionMapping(release string, out io.Writer) error {
	if release == "" {
		release = metadata.LatestMetadataVersion.String()
	}
	// The tool lists the first level of the next release as well, although it is not stable.
	version, err := parseRelease(release, "4.5-IV0")
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "metadata.version=%d (%s)\n", version, release)
	for _, name := range toolFeatures {
		if f, ok := metadata.FeatureByName(name); ok {
			fmt.Fprintf(&b, "%s=%d\n", name, f.DefaultLevel(version))
		}
	}
	_, err = io.WriteString(out, b.String())
	return err
}

// FeatureDependencies prints what feature levels (NAME=LEVEL) need, as `kafka-storage.sh feature-dependencies` does.
func FeatureDependencies(args []string, out io.Writer) error {
	for _, arg := range args {
		text, err := featureDependency(arg)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

func featureDependency(arg string) (string, error) {
	name, levelText, ok := strings.Cut(arg, "=")
	if !ok {
		return "", formatError("Invalid feature format: %s. Expected format: 'feature=version' (e.g. 'group.version=1')", arg)
	}
	n, err := strconv.ParseInt(levelText, 10, 16)
	if err != nil {
		return "", formatError("Invalid version format: %s for feature %s", levelText, name)
	}
	if name == metadata.FeatureMetadataVersion {
		v := metadata.MetadataVersion(n)
		if !v.Valid() {
			return "", formatError("Unknown metadata.version %d", n)
		}
		return fmt.Sprintf("%s=%d (%s) has no dependencies.\n", name, n, v), nil
	}
	feature, ok := metadata.FeatureByName(name)
	if !ok {
		return "", formatError("Unknown feature: %s", name)
	}
	i := slices.IndexFunc(feature.Levels, func(l metadata.FeatureLevel) bool { return l.Level == int16(n) })
	if i < 0 {
		return "", formatError("Feature level %d is not supported for feature %s", n, name)
	}
	needs := feature.Levels[i].DependsOn
	if len(needs) == 0 {
		return fmt.Sprintf("%s=%d has no dependencies.\n", name, n), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%d requires:\n", name, n)
	for dep, level := range needs {
		if dep == metadata.FeatureMetadataVersion {
			fmt.Fprintf(&b, "    %s=%d (%s)\n", dep, level, metadata.MetadataVersion(level))
		} else {
			fmt.Fprintf(&b, "    %s=%d\n", dep, level)
		}
	}
	return b.String(), nil
}
