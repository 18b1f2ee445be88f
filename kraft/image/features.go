package image

import (
	"iter"
	"strings"

	"gregor/kraft/metadata"
)

// Features holds the finalized levels of features. kraft.version is not among them: the quorum keeps it.
type Features struct {
	levels  tree[string, int16] // without metadata.version and without level 0
	version metadata.MetadataVersion
}

func emptyFeatures() *Features {
	return &Features{levels: newTree[string, int16](strings.Compare)}
}

// MetadataVersion returns the level of metadata.version, 0 if none is finalized.
func (f *Features) MetadataVersion() metadata.MetadataVersion { return f.version }

// Level returns the finalized level of a feature, 0 if it is not finalized.
func (f *Features) Level(name string) int16 {
	if name == metadata.FeatureMetadataVersion {
		return int16(f.version)
	}
	level, _ := f.levels.get(name)
	return level
}

// ELREnabled reports whether eligible leader replicas are kept (KIP-966).
func (f *Features) ELREnabled() bool { return f.Level(metadata.FeatureELR) >= 1 }

// All iterates over the finalized features, metadata.version included, by name.
func (f *Features) All() iter.Seq2[string, int16] {
	return func(yield func(string, int16) bool) {
		pending := f.version != 0
		for name, level := range f.levels.all() {
			if pending && name > metadata.FeatureMetadataVersion {
				pending = false
				if !yield(metadata.FeatureMetadataVersion, int16(f.version)) {
					return
				}
			}
			if !yield(name, level) {
				return
			}
		}
		if pending {
			yield(metadata.FeatureMetadataVersion, int16(f.version))
		}
	}
}

func (f *Features) equal(o *Features) bool {
	return f.version == o.version && equalTrees(&f.levels, &o.levels, func(a, b int16) bool { return a == b })
}
