package differential

import "slices"

// differing are the fields whose values two clusters never share.
var differing = []string{
	// Free space of the disk, read at two moments.
	"DescribeLogDirs.Dirs[].TotalBytes", "DescribeLogDirs.Dirs[].UsableBytes",
	// How far the metadata log has come: heartbeats and snapshots of the one are not those of the other.
	"ApiVersions.FinalizedFeaturesEpoch",
	"DescribeQuorum.Topics[].Partitions[].HighWatermark", "DescribeQuorum.Topics[].Partitions[].LeaderEpoch",
	"DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LogEndOffset", "DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LastFetchTimestamp",
	"DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LastCaughtUpTimestamp",
	"DescribeQuorum.Topics[].Partitions[].Observers[].LogEndOffset",
}

// unordered are arrays that come in the order of a hash map.
var unordered = []string{
	"Metadata.Topics", "CreateTopics.Topics", "DeleteTopics.Topics", "CreatePartitions.Topics", "DescribeConfigs.Resources[].Configs", "DescribeConfigs.Resources",
	"AlterConfigs.Resources", "IncrementalAlterConfigs.Resources", "DeleteRecords.Topics", "DeleteRecords.Topics[].Partitions", "DescribeLogDirs.Dirs[].Topics",
	"DescribeLogDirs.Dirs[].Topics[].Partitions", "ListOffsets.Topics", "ListOffsets.Topics[].Partitions", "Produce.Topics", "Produce.Topics[].Partitions",
	"ListGroups.Groups", "ListConfigResources.ConfigResources", "ApiVersions.SupportedFeatures", "ApiVersions.FinalizedFeatures", "OffsetFetch.Topics", "OffsetFetch.Groups[].Topics",
	"OffsetForLeaderEpoch.Topics", "OffsetForLeaderEpoch.Topics[].Partitions", "Fetch.Topics", "UpdateFeatures.Results", "OffsetFetch.Topics[].Partitions", "OffsetFetch.Groups[].Topics[].Partitions",
	"ElectLeaders.Topics", "DeleteGroups.Groups", "AlterPartitionReassignments.Topics", "DescribeProducers.Topics",
}

func mayDiffer(path string) bool { return slices.Contains(differing, path) }

func anyOrder(path string) bool { return slices.Contains(unordered, path) }
