package protocol

// Listeners says on which kind of listener an API is served.
type Listeners uint8

// The kinds of listeners.
const (
	OnBroker     Listeners = 1 << iota // client and inter-broker listeners
	OnController                       // listeners of controller.listener.names
)

// API holds the facts of one API key of Kafka 4.4.0.
type API struct {
	// Key is the API key.
	Key int16
	// Name is Kafka's name, such as "Produce".
	Name string
	// MinVersion and MaxVersion are what is served. The unstable version 6 of
	// InitProducerId is not.
	MinVersion, MaxVersion int16
	// AdvertisedMin is the lowest version that ApiVersions lists: MinVersion,
	// but for Produce 0, because old librdkafka looks for it.
	AdvertisedMin int16
	// FlexibleFrom is the first version with compact lengths and tagged fields,
	// or -1.
	FlexibleFrom int16
	// Listeners is where the API is served.
	Listeners Listeners
	// ClusterAction is set when the API is between nodes and needs
	// CLUSTER_ACTION on the cluster.
	ClusterAction bool
	// Forwardable is set when a broker forwards the API to the controller.
	Forwardable bool
	// Private is set for Gregor's own API, which ApiVersions never lists.
	Private bool
}

// RaftMessageKey is Gregor's own API between its controllers: the body of the
// request and of the answer is opaque to this package. It is served on
// controller listeners and never advertised.
const RaftMessageKey int16 = 20100

// raftMessageAPI describes RaftMessageKey; headers are the flexible ones.
var raftMessageAPI = API{
	Key: RaftMessageKey, Name: "GregorRaftMessage", FlexibleFrom: 0,
	Listeners: OnController, ClusterAction: true, Private: true,
}

// APIByKey returns the facts of an API. The removed keys 4 to 7 are unknown.
func APIByKey(key int16) (API, bool) {
	if a := apiByKey(key); a != nil {
		return *a, true
	}
	return API{}, false
}

// APIs returns the facts of all APIs of Kafka 4.4.0, ascending by key, without
// Gregor's own.
func APIs() []API {
	all := make([]API, 0, len(apiTable))
	for i := range apiTable {
		if apiTable[i].Name != "" {
			all = append(all, apiTable[i])
		}
	}
	return all
}

// APIName returns the name of a key, or "Unknown".
func APIName(key int16) string {
	if a := apiByKey(key); a != nil {
		return a.Name
	}
	return "Unknown"
}

// Supports reports whether a version is served.
func (a *API) Supports(version int16) bool {
	return version >= a.MinVersion && version <= a.MaxVersion
}

// Flexible reports whether a version has compact lengths and tagged fields.
func (a *API) Flexible(version int16) bool {
	return a.FlexibleFrom >= 0 && version >= a.FlexibleFrom
}

// RequestHeaderVersion returns the version of the request header, 1 or 2. A
// version that is not served has one too: the header is read before the version
// is judged.
func RequestHeaderVersion(key, version int16) int16 {
	if a := apiByKey(key); a != nil && a.Flexible(version) {
		return 2
	}
	return 1
}

// ResponseHeaderVersion returns the version of the response header, 0 or 1.
// ApiVersions always has 0, so that a client of any age can read it.
func ResponseHeaderVersion(key, version int16) int16 {
	if a := apiByKey(key); a != nil && a.Flexible(version) && key != KeyApiVersions {
		return 1
	}
	return 0
}

func apiByKey(key int16) *API {
	if key >= 0 && int(key) < len(apiTable) && apiTable[key].Name != "" {
		return &apiTable[key]
	}
	if key == RaftMessageKey {
		return &raftMessageAPI
	}
	return nil
}
