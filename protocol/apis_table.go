package protocol

// API keys of Kafka 4.4.0.
const (
	KeyProduce                               int16 = 0
	KeyFetch                                 int16 = 1
	KeyListOffsets                           int16 = 2
	KeyMetadata                              int16 = 3
	KeyOffsetCommit                          int16 = 8
	KeyOffsetFetch                           int16 = 9
	KeyFindCoordinator                       int16 = 10
	KeyJoinGroup                             int16 = 11
	KeyHeartbeat                             int16 = 12
	KeyLeaveGroup                            int16 = 13
	KeySyncGroup                             int16 = 14
	KeyDescribeGroups                        int16 = 15
	KeyListGroups                            int16 = 16
	KeySaslHandshake                         int16 = 17
	KeyApiVersions                           int16 = 18
	KeyCreateTopics                          int16 = 19
	KeyDeleteTopics                          int16 = 20
	KeyDeleteRecords                         int16 = 21
	KeyInitProducerId                        int16 = 22
	KeyOffsetForLeaderEpoch                  int16 = 23
	KeyAddPartitionsToTxn                    int16 = 24
	KeyAddOffsetsToTxn                       int16 = 25
	KeyEndTxn                                int16 = 26
	KeyWriteTxnMarkers                       int16 = 27
	KeyTxnOffsetCommit                       int16 = 28
	KeyDescribeAcls                          int16 = 29
	KeyCreateAcls                            int16 = 30
	KeyDeleteAcls                            int16 = 31
	KeyDescribeConfigs                       int16 = 32
	KeyAlterConfigs                          int16 = 33
	KeyAlterReplicaLogDirs                   int16 = 34
	KeyDescribeLogDirs                       int16 = 35
	KeySaslAuthenticate                      int16 = 36
	KeyCreatePartitions                      int16 = 37
	KeyCreateDelegationToken                 int16 = 38
	KeyRenewDelegationToken                  int16 = 39
	KeyExpireDelegationToken                 int16 = 40
	KeyDescribeDelegationToken               int16 = 41
	KeyDeleteGroups                          int16 = 42
	KeyElectLeaders                          int16 = 43
	KeyIncrementalAlterConfigs               int16 = 44
	KeyAlterPartitionReassignments           int16 = 45
	KeyListPartitionReassignments            int16 = 46
	KeyOffsetDelete                          int16 = 47
	KeyDescribeClientQuotas                  int16 = 48
	KeyAlterClientQuotas                     int16 = 49
	KeyDescribeUserScramCredentials          int16 = 50
	KeyAlterUserScramCredentials             int16 = 51
	KeyVote                                  int16 = 52
	KeyBeginQuorumEpoch                      int16 = 53
	KeyEndQuorumEpoch                        int16 = 54
	KeyDescribeQuorum                        int16 = 55
	KeyAlterPartition                        int16 = 56
	KeyUpdateFeatures                        int16 = 57
	KeyEnvelope                              int16 = 58
	KeyFetchSnapshot                         int16 = 59
	KeyDescribeCluster                       int16 = 60
	KeyDescribeProducers                     int16 = 61
	KeyBrokerRegistration                    int16 = 62
	KeyBrokerHeartbeat                       int16 = 63
	KeyUnregisterBroker                      int16 = 64
	KeyDescribeTransactions                  int16 = 65
	KeyListTransactions                      int16 = 66
	KeyAllocateProducerIds                   int16 = 67
	KeyConsumerGroupHeartbeat                int16 = 68
	KeyConsumerGroupDescribe                 int16 = 69
	KeyControllerRegistration                int16 = 70
	KeyGetTelemetrySubscriptions             int16 = 71
	KeyPushTelemetry                         int16 = 72
	KeyAssignReplicasToDirs                  int16 = 73
	KeyListConfigResources                   int16 = 74
	KeyDescribeTopicPartitions               int16 = 75
	KeyShareGroupHeartbeat                   int16 = 76
	KeyShareGroupDescribe                    int16 = 77
	KeyShareFetch                            int16 = 78
	KeyShareAcknowledge                      int16 = 79
	KeyAddRaftVoter                          int16 = 80
	KeyRemoveRaftVoter                       int16 = 81
	KeyUpdateRaftVoter                       int16 = 82
	KeyInitializeShareGroupState             int16 = 83
	KeyReadShareGroupState                   int16 = 84
	KeyWriteShareGroupState                  int16 = 85
	KeyDeleteShareGroupState                 int16 = 86
	KeyReadShareGroupStateSummary            int16 = 87
	KeyStreamsGroupHeartbeat                 int16 = 88
	KeyStreamsGroupDescribe                  int16 = 89
	KeyDescribeShareGroupOffsets             int16 = 90
	KeyAlterShareGroupOffsets                int16 = 91
	KeyDeleteShareGroupOffsets               int16 = 92
	KeyStreamsGroupTopologyDescriptionUpdate int16 = 93
	KeyUnregisterController                  int16 = 94
)

// apiTable is indexed by key; keys that Kafka removed have no name.
var apiTable = [...]API{
	KeyProduce:                               {Key: 0, Name: "Produce", MinVersion: 3, MaxVersion: 13, AdvertisedMin: 0, FlexibleFrom: 9, Listeners: OnBroker},
	KeyFetch:                                 {Key: 1, Name: "Fetch", MinVersion: 4, MaxVersion: 18, AdvertisedMin: 4, FlexibleFrom: 12, Listeners: OnBroker | OnController},
	KeyListOffsets:                           {Key: 2, Name: "ListOffsets", MinVersion: 1, MaxVersion: 11, AdvertisedMin: 1, FlexibleFrom: 6, Listeners: OnBroker},
	KeyMetadata:                              {Key: 3, Name: "Metadata", MinVersion: 0, MaxVersion: 13, AdvertisedMin: 0, FlexibleFrom: 9, Listeners: OnBroker},
	KeyOffsetCommit:                          {Key: 8, Name: "OffsetCommit", MinVersion: 2, MaxVersion: 10, AdvertisedMin: 2, FlexibleFrom: 8, Listeners: OnBroker},
	KeyOffsetFetch:                           {Key: 9, Name: "OffsetFetch", MinVersion: 1, MaxVersion: 10, AdvertisedMin: 1, FlexibleFrom: 6, Listeners: OnBroker},
	KeyFindCoordinator:                       {Key: 10, Name: "FindCoordinator", MinVersion: 0, MaxVersion: 6, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeyJoinGroup:                             {Key: 11, Name: "JoinGroup", MinVersion: 0, MaxVersion: 9, AdvertisedMin: 0, FlexibleFrom: 6, Listeners: OnBroker},
	KeyHeartbeat:                             {Key: 12, Name: "Heartbeat", MinVersion: 0, MaxVersion: 4, AdvertisedMin: 0, FlexibleFrom: 4, Listeners: OnBroker},
	KeyLeaveGroup:                            {Key: 13, Name: "LeaveGroup", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 4, Listeners: OnBroker},
	KeySyncGroup:                             {Key: 14, Name: "SyncGroup", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 4, Listeners: OnBroker},
	KeyDescribeGroups:                        {Key: 15, Name: "DescribeGroups", MinVersion: 0, MaxVersion: 6, AdvertisedMin: 0, FlexibleFrom: 5, Listeners: OnBroker},
	KeyListGroups:                            {Key: 16, Name: "ListGroups", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeySaslHandshake:                         {Key: 17, Name: "SaslHandshake", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: -1, Listeners: OnBroker | OnController},
	KeyApiVersions:                           {Key: 18, Name: "ApiVersions", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker | OnController},
	KeyCreateTopics:                          {Key: 19, Name: "CreateTopics", MinVersion: 2, MaxVersion: 7, AdvertisedMin: 2, FlexibleFrom: 5, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDeleteTopics:                          {Key: 20, Name: "DeleteTopics", MinVersion: 1, MaxVersion: 6, AdvertisedMin: 1, FlexibleFrom: 4, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDeleteRecords:                         {Key: 21, Name: "DeleteRecords", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker},
	KeyInitProducerId:                        {Key: 22, Name: "InitProducerId", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker},
	KeyOffsetForLeaderEpoch:                  {Key: 23, Name: "OffsetForLeaderEpoch", MinVersion: 2, MaxVersion: 4, AdvertisedMin: 2, FlexibleFrom: 4, Listeners: OnBroker},
	KeyAddPartitionsToTxn:                    {Key: 24, Name: "AddPartitionsToTxn", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeyAddOffsetsToTxn:                       {Key: 25, Name: "AddOffsetsToTxn", MinVersion: 0, MaxVersion: 4, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeyEndTxn:                                {Key: 26, Name: "EndTxn", MinVersion: 0, MaxVersion: 5, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeyWriteTxnMarkers:                       {Key: 27, Name: "WriteTxnMarkers", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 1, Listeners: OnBroker, ClusterAction: true},
	KeyTxnOffsetCommit:                       {Key: 28, Name: "TxnOffsetCommit", MinVersion: 0, MaxVersion: 6, AdvertisedMin: 0, FlexibleFrom: 3, Listeners: OnBroker},
	KeyDescribeAcls:                          {Key: 29, Name: "DescribeAcls", MinVersion: 1, MaxVersion: 3, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController},
	KeyCreateAcls:                            {Key: 30, Name: "CreateAcls", MinVersion: 1, MaxVersion: 3, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDeleteAcls:                            {Key: 31, Name: "DeleteAcls", MinVersion: 1, MaxVersion: 3, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDescribeConfigs:                       {Key: 32, Name: "DescribeConfigs", MinVersion: 1, MaxVersion: 4, AdvertisedMin: 1, FlexibleFrom: 4, Listeners: OnBroker | OnController},
	KeyAlterConfigs:                          {Key: 33, Name: "AlterConfigs", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyAlterReplicaLogDirs:                   {Key: 34, Name: "AlterReplicaLogDirs", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker},
	KeyDescribeLogDirs:                       {Key: 35, Name: "DescribeLogDirs", MinVersion: 1, MaxVersion: 5, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker},
	KeySaslAuthenticate:                      {Key: 36, Name: "SaslAuthenticate", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker | OnController},
	KeyCreatePartitions:                      {Key: 37, Name: "CreatePartitions", MinVersion: 0, MaxVersion: 3, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyCreateDelegationToken:                 {Key: 38, Name: "CreateDelegationToken", MinVersion: 1, MaxVersion: 3, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyRenewDelegationToken:                  {Key: 39, Name: "RenewDelegationToken", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyExpireDelegationToken:                 {Key: 40, Name: "ExpireDelegationToken", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDescribeDelegationToken:               {Key: 41, Name: "DescribeDelegationToken", MinVersion: 1, MaxVersion: 3, AdvertisedMin: 1, FlexibleFrom: 2, Listeners: OnBroker | OnController},
	KeyDeleteGroups:                          {Key: 42, Name: "DeleteGroups", MinVersion: 0, MaxVersion: 3, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker},
	KeyElectLeaders:                          {Key: 43, Name: "ElectLeaders", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 2, Listeners: OnBroker | OnController, Forwardable: true},
	KeyIncrementalAlterConfigs:               {Key: 44, Name: "IncrementalAlterConfigs", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 1, Listeners: OnBroker | OnController, Forwardable: true},
	KeyAlterPartitionReassignments:           {Key: 45, Name: "AlterPartitionReassignments", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyListPartitionReassignments:            {Key: 46, Name: "ListPartitionReassignments", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyOffsetDelete:                          {Key: 47, Name: "OffsetDelete", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: -1, Listeners: OnBroker},
	KeyDescribeClientQuotas:                  {Key: 48, Name: "DescribeClientQuotas", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 1, Listeners: OnBroker},
	KeyAlterClientQuotas:                     {Key: 49, Name: "AlterClientQuotas", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 1, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDescribeUserScramCredentials:          {Key: 50, Name: "DescribeUserScramCredentials", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController},
	KeyAlterUserScramCredentials:             {Key: 51, Name: "AlterUserScramCredentials", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyVote:                                  {Key: 52, Name: "Vote", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true},
	KeyBeginQuorumEpoch:                      {Key: 53, Name: "BeginQuorumEpoch", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 1, Listeners: OnController, ClusterAction: true},
	KeyEndQuorumEpoch:                        {Key: 54, Name: "EndQuorumEpoch", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 1, Listeners: OnController, ClusterAction: true},
	KeyDescribeQuorum:                        {Key: 55, Name: "DescribeQuorum", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, ClusterAction: true, Forwardable: true},
	KeyAlterPartition:                        {Key: 56, Name: "AlterPartition", MinVersion: 2, MaxVersion: 3, AdvertisedMin: 2, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true},
	KeyUpdateFeatures:                        {Key: 57, Name: "UpdateFeatures", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, ClusterAction: true, Forwardable: true},
	KeyEnvelope:                              {Key: 58, Name: "Envelope", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true},
	KeyFetchSnapshot:                         {Key: 59, Name: "FetchSnapshot", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController},
	KeyDescribeCluster:                       {Key: 60, Name: "DescribeCluster", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController},
	KeyDescribeProducers:                     {Key: 61, Name: "DescribeProducers", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyBrokerRegistration:                    {Key: 62, Name: "BrokerRegistration", MinVersion: 0, MaxVersion: 4, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true},
	KeyBrokerHeartbeat:                       {Key: 63, Name: "BrokerHeartbeat", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true},
	KeyUnregisterBroker:                      {Key: 64, Name: "UnregisterBroker", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyDescribeTransactions:                  {Key: 65, Name: "DescribeTransactions", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyListTransactions:                      {Key: 66, Name: "ListTransactions", MinVersion: 0, MaxVersion: 2, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyAllocateProducerIds:                   {Key: 67, Name: "AllocateProducerIds", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController, ClusterAction: true, Forwardable: true},
	KeyConsumerGroupHeartbeat:                {Key: 68, Name: "ConsumerGroupHeartbeat", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyConsumerGroupDescribe:                 {Key: 69, Name: "ConsumerGroupDescribe", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyControllerRegistration:                {Key: 70, Name: "ControllerRegistration", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController},
	KeyGetTelemetrySubscriptions:             {Key: 71, Name: "GetTelemetrySubscriptions", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyPushTelemetry:                         {Key: 72, Name: "PushTelemetry", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyAssignReplicasToDirs:                  {Key: 73, Name: "AssignReplicasToDirs", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController},
	KeyListConfigResources:                   {Key: 74, Name: "ListConfigResources", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyDescribeTopicPartitions:               {Key: 75, Name: "DescribeTopicPartitions", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyShareGroupHeartbeat:                   {Key: 76, Name: "ShareGroupHeartbeat", MinVersion: 1, MaxVersion: 1, AdvertisedMin: 1, FlexibleFrom: 0, Listeners: OnBroker},
	KeyShareGroupDescribe:                    {Key: 77, Name: "ShareGroupDescribe", MinVersion: 1, MaxVersion: 1, AdvertisedMin: 1, FlexibleFrom: 0, Listeners: OnBroker},
	KeyShareFetch:                            {Key: 78, Name: "ShareFetch", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 0, Listeners: OnBroker},
	KeyShareAcknowledge:                      {Key: 79, Name: "ShareAcknowledge", MinVersion: 1, MaxVersion: 2, AdvertisedMin: 1, FlexibleFrom: 0, Listeners: OnBroker},
	KeyAddRaftVoter:                          {Key: 80, Name: "AddRaftVoter", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyRemoveRaftVoter:                       {Key: 81, Name: "RemoveRaftVoter", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
	KeyUpdateRaftVoter:                       {Key: 82, Name: "UpdateRaftVoter", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnController},
	KeyInitializeShareGroupState:             {Key: 83, Name: "InitializeShareGroupState", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker, ClusterAction: true},
	KeyReadShareGroupState:                   {Key: 84, Name: "ReadShareGroupState", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker, ClusterAction: true},
	KeyWriteShareGroupState:                  {Key: 85, Name: "WriteShareGroupState", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker, ClusterAction: true},
	KeyDeleteShareGroupState:                 {Key: 86, Name: "DeleteShareGroupState", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker, ClusterAction: true},
	KeyReadShareGroupStateSummary:            {Key: 87, Name: "ReadShareGroupStateSummary", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker, ClusterAction: true},
	KeyStreamsGroupHeartbeat:                 {Key: 88, Name: "StreamsGroupHeartbeat", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyStreamsGroupDescribe:                  {Key: 89, Name: "StreamsGroupDescribe", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyDescribeShareGroupOffsets:             {Key: 90, Name: "DescribeShareGroupOffsets", MinVersion: 0, MaxVersion: 1, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyAlterShareGroupOffsets:                {Key: 91, Name: "AlterShareGroupOffsets", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyDeleteShareGroupOffsets:               {Key: 92, Name: "DeleteShareGroupOffsets", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyStreamsGroupTopologyDescriptionUpdate: {Key: 93, Name: "StreamsGroupTopologyDescriptionUpdate", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker},
	KeyUnregisterController:                  {Key: 94, Name: "UnregisterController", MinVersion: 0, MaxVersion: 0, AdvertisedMin: 0, FlexibleFrom: 0, Listeners: OnBroker | OnController, Forwardable: true},
}
