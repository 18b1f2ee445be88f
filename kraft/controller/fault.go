package controller

import (
	"errors"
	"fmt"

	"gregor/protocol"
)

// Kafka error codes that decisions give (kafka-4.4/errors.tsv).
const (
	codeUnknownServer            int16 = -1
	codeNone                     int16 = 0
	codeUnknownTopicOrPartition  int16 = 3
	codeNotLeaderOrFollower      int16 = 6
	codeInvalidTopic             int16 = 17
	codeTopicAuthorization       int16 = 29
	codeGroupAuthorization       int16 = 30
	codeClusterAuthorization     int16 = 31
	codeUnsupportedSASLMechanism int16 = 33
	codeUnsupportedVersion       int16 = 35
	codeTopicExists              int16 = 36
	codeInvalidPartitions        int16 = 37
	codeInvalidReplicationFactor int16 = 38
	codeInvalidAssignment        int16 = 39
	codeInvalidConfig            int16 = 40
	codeNotController            int16 = 41
	codeInvalidRequest           int16 = 42
	codePolicyViolation          int16 = 44
	codeTopicDeletionDisabled    int16 = 73
	codeFencedLeaderEpoch        int16 = 74
	codeStaleBrokerEpoch         int16 = 77
	codePreferredLeaderNotAvail  int16 = 80
	codeEligibleLeadersNotAvail  int16 = 83
	codeElectionNotNeeded        int16 = 84
	codeNoReassignment           int16 = 85
	codeThrottlingQuotaExceeded  int16 = 89
	codeResourceNotFound         int16 = 91
	codeDuplicateResource        int16 = 92
	codeUnacceptableCredential   int16 = 93
	codeInvalidUpdateVersion     int16 = 95
	codeUnknownTopicID           int16 = 100
	codeDuplicateBroker          int16 = 101
	codeBrokerNotRegistered      int16 = 102
	codeInconsistentClusterID    int16 = 104
	codeIneligibleReplica        int16 = 107
	codeNewLeaderElected         int16 = 108
	codeUnsupportedEndpointType  int16 = 115
	codeUnknownControllerID      int16 = 116
	codeMismatchedEndpointType   int16 = 114
	codeInvalidRegistration      int16 = 119
	codeControllerNotRegistered  int16 = 136
)

// Fault is why a request, or one item of it, is refused: a Kafka error code and the message a client sees.
type Fault struct {
	Code int16
	// Message is nil when Kafka sends none.
	Message *string
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Message != nil {
		return *f.Message
	}
	return protocol.ErrorMessage(f.Code)
}

// KafkaErrorCode lets protocol.ErrorCode find the code.
func (f *Fault) KafkaErrorCode() int16 { return f.Code }

// refuse makes a fault with a message of its own.
func refuse(code int16, format string, args ...any) *Fault {
	m := fmt.Sprintf(format, args...)
	return &Fault{Code: code, Message: &m}
}

// refuseBare makes a fault with Kafka's standard text of the code, as Kafka's ApiError(Errors) does.
func refuseBare(code int16) *Fault {
	m := protocol.ErrorMessage(code)
	return &Fault{Code: code, Message: &m}
}

// refuseSilent makes a fault without a message: what Kafka sends for an exception that carries only its code's
// standard text.
func refuseSilent(code int16) *Fault {
	return &Fault{Code: code}
}

// faultOf turns any error into a fault; errors that are none of ours become UNKNOWN_SERVER_ERROR without a text.
func faultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	code := protocol.ErrorCode(err)
	if code == codeUnknownServer {
		return refuseSilent(code)
	}
	m := protocol.ErrorMessageOf(err)
	return &Fault{Code: code, Message: &m}
}

// codeAndMessage splits a fault (or nil) into the two fields that responses carry.
func codeAndMessage(f *Fault) (int16, *string) {
	if f == nil {
		return codeNone, nil
	}
	return f.Code, f.Message
}
