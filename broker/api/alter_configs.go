package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/internal/configdef"
	"gregor/protocol"
)

// alterConfigs answers AlterConfigs (key 33, versions 0 to 2) and IncrementalAlterConfigs (44, 0 and 1; KIP-339): the
// broker checks what needs no state, and the controller decides on the rest.
//
// INVALID_REQUEST for a null value (except to delete), for a resource or key that is there twice, for a broker
// resource that is not this broker, for a broker key that cannot be altered while the broker runs, for broker configs
// that would not fit together, and for levels of loggers, which this broker does not alter one by one.
type alterConfigs struct {
	node        Node
	controllers Controllers
}

// Operations of IncrementalAlterConfigs.
const opDelete = kmsg.IncrementalAlterConfigOpDelete

// alteration is one resource of either API, as far as it is checked here.
type alteration struct {
	kind     kmsg.ConfigResourceType
	name     string
	keys     []string
	nullKeys []string
	deletes  []string
	texts    map[string]string // values to be set
	// replaces is set when keys that are not named lose their values (AlterConfigs).
	replaces bool
}

// applied are the configs of the resource after the alteration. What appends to lists or subtracts from them is left as
// it is.
func (a *alteration) applied(current map[string]string) map[string]string {
	next := map[string]string{}
	if !a.replaces {
		maps.Copy(next, current)
	}
	for _, key := range a.deletes {
		delete(next, key)
	}
	maps.Copy(next, a.texts)
	return next
}

// check returns the error of each resource; nil where the controller decides.
func (h *alterConfigs) check(all []alteration) []error {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	times := make(map[resource]int, len(all))
	for _, a := range all {
		times[resource{a.kind, a.name}]++
	}
	errs := make([]error, len(all))
	for i, a := range all {
		if times[resource{a.kind, a.name}] > 1 {
			errs[i] = invalid("Each resource must appear at most once.")
		} else {
			errs[i] = h.checkOne(&all[i])
		}
	}
	return errs
}

func (h *alterConfigs) checkOne(a *alteration) error {
	keys := slices.Clone(a.keys)
	slices.Sort(keys)
	if len(slices.Compact(keys)) < len(a.keys) {
		return invalid("Error due to duplicate config keys")
	}
	if len(a.nullKeys) > 0 {
		return invalid("Null value not supported for : %s", strings.Join(a.nullKeys, ", "))
	}
	switch a.kind {
	case kmsg.ConfigResourceTypeBroker:
		return h.checkBroker(a)
	case kmsg.ConfigResourceTypeBrokerLogger:
		if a.replaces {
			break // AlterConfigs never knew them
		}
		return h.checkLogger(a)
	case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return nil
	case kmsg.ConfigResourceTypeUnknown:
	}
	return invalid("Unknown resource type %d", a.kind)
}

// checkLogger refuses alterations of log levels in the order of Kafka's checks. The one logger that there is has a level
// that is set at start.
func (h *alterConfigs) checkLogger(a *alteration) error {
	id, err := strconv.ParseInt(a.name, 10, 32)
	if err != nil {
		return invalid("Node id must be an integer, but it is: %s", a.name)
	}
	if int32(id) != h.node.ID {
		return invalid("Unexpected node id. Expected %d, but received %s", h.node.ID, a.name)
	}
	for _, name := range a.keys {
		if name != rootLogger {
			return protocol.NewError(kerr.InvalidConfig.Code, "Logger "+name+" does not exist!")
		}
	}
	return invalid("Levels of loggers cannot be altered: this broker has one level for all")
}

// checkBroker checks that a broker resource names this broker, or all, and that its keys can be altered at run time.
func (h *alterConfigs) checkBroker(a *alteration) error {
	if a.name != "" {
		id, err := strconv.ParseInt(a.name, 10, 32)
		if err != nil {
			return invalid("Node id must be an integer, but it is: %s", a.name)
		}
		if int32(id) != h.node.ID {
			return invalid("Unexpected broker id, expected %d, but received %s", h.node.ID, a.name)
		}
	}
	if err := a.checkBrokerKeys(); err != nil {
		return err
	}
	return h.checkWhole(a)
}

// checkBrokerKeys checks, in the order of Kafka's checks, that the keys can be altered at run time, and here, and that
// their values can be parsed.
func (a *alteration) checkBrokerKeys() error {
	var fixed, unprefixed, perBroker []string
	for _, key := range a.keys {
		k := config.KeyOf(key)
		switch {
		case k == nil:
			continue // a plugin's key: stored, and read by nobody here
		case k.UpdateMode == configdef.ReadOnly:
			fixed = append(fixed, key)
		case k.Name == key && reconfigurableSSL[key]:
			unprefixed = append(unprefixed, key)
		case a.name == "" && (k.UpdateMode == configdef.PerBroker || k.Name != key):
			perBroker = append(perBroker, key)
		}
	}
	switch {
	case len(fixed) > 0:
		return invalid("Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	case len(unprefixed) > 0:
		return invalid("These security configs can be dynamically updated only per-listener using the listener prefix: [%s]", strings.Join(unprefixed, ", "))
	}
	if err := a.checkTexts(); err != nil {
		return err
	}
	if len(perBroker) > 0 {
		return invalid("Cannot update these configs at default cluster level, broker id must be specified: [%s]", strings.Join(perBroker, ", "))
	}
	return nil
}

// checkTexts parses the values of the keys that are known.
func (a *alteration) checkTexts() error {
	for _, key := range a.keys {
		text, ok := a.texts[key]
		k := config.KeyOf(key)
		if !ok || k == nil {
			continue
		}
		if _, err := k.Parse(text); err != nil {
			return invalid("%s", err)
		}
	}
	return nil
}

// checkWhole checks that the broker's configs still fit together after the alteration.
func (h *alterConfigs) checkWhole(a *alteration) error {
	img := h.node.Images.Image()
	defaults, own := img.Configs.BrokerDefault(), img.Configs.Broker(h.node.ID)
	if a.name == "" {
		defaults = a.applied(defaults)
	} else {
		own = a.applied(own)
	}
	if err := h.node.Config().CheckAlteration(defaults, own); err != nil {
		return invalid("%s", err)
	}
	return nil
}

// reconfigurableSSL are the keys that can be altered for a listener, and only so (KIP-226).
var reconfigurableSSL = map[string]bool{
	"ssl.keystore.type": true, "ssl.keystore.location": true, "ssl.keystore.password": true, "ssl.key.password": true,
	"ssl.keystore.certificate.chain": true, "ssl.keystore.key": true, "ssl.truststore.type": true, "ssl.truststore.location": true,
	"ssl.truststore.password": true, "ssl.truststore.certificates": true,
}

func (h *alterConfigs) incremental(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.IncrementalAlterConfigsRequest)
	all := make([]alteration, len(req.Resources))
	for i, r := range req.Resources {
		a := alteration{kind: r.ResourceType, name: r.ResourceName, texts: map[string]string{}}
		for _, x := range r.Configs {
			a.keys = append(a.keys, x.Name)
			switch {
			case x.Op == opDelete:
				a.deletes = append(a.deletes, x.Name)
			case x.Value == nil:
				a.nullKeys = append(a.nullKeys, x.Name)
			case x.Op == kmsg.IncrementalAlterConfigOpSet:
				a.texts[x.Name] = *x.Value
			}
		}
		all[i] = a
	}
	errs := h.check(all)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.SetVersion(req.Version)
	forward := *req
	forward.Resources = nil
	for i, r := range req.Resources {
		if errs[i] == nil {
			forward.Resources = append(forward.Resources, r)
			continue
		}
		x := kmsg.NewIncrementalAlterConfigsResponseResource()
		x.ResourceType, x.ResourceName, x.ErrorCode, x.ErrorMessage = r.ResourceType, r.ResourceName, protocol.ErrorCode(errs[i]), message(errs[i])
		resp.Resources = append(resp.Resources, x)
	}
	if len(forward.Resources) == 0 {
		return resp
	}
	sub := *c
	sub.Request = &forward
	answer, ok := h.controllers.Forward(ctx, &sub).(*kmsg.IncrementalAlterConfigsResponse)
	if !ok {
		panic(fmt.Sprintf("api: answer to IncrementalAlterConfigs is a %T", answer))
	}
	answer.Resources = append(answer.Resources, resp.Resources...)
	return answer
}

func (h *alterConfigs) legacy(ctx context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.AlterConfigsRequest)
	all := make([]alteration, len(req.Resources))
	for i, r := range req.Resources {
		a := alteration{kind: r.ResourceType, name: r.ResourceName, texts: map[string]string{}, replaces: true}
		for _, x := range r.Configs {
			a.keys = append(a.keys, x.Name)
			if x.Value == nil {
				a.nullKeys = append(a.nullKeys, x.Name)
			} else {
				a.texts[x.Name] = *x.Value
			}
		}
		all[i] = a
	}
	errs := h.check(all)
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.SetVersion(req.Version)
	forward := *req
	forward.Resources = nil
	for i, r := range req.Resources {
		if errs[i] == nil {
			forward.Resources = append(forward.Resources, r)
			continue
		}
		x := kmsg.NewAlterConfigsResponseResource()
		x.ResourceType, x.ResourceName, x.ErrorCode, x.ErrorMessage = r.ResourceType, r.ResourceName, protocol.ErrorCode(errs[i]), message(errs[i])
		resp.Resources = append(resp.Resources, x)
	}
	if len(forward.Resources) == 0 {
		return resp
	}
	sub := *c
	sub.Request = &forward
	answer, ok := h.controllers.Forward(ctx, &sub).(*kmsg.AlterConfigsResponse)
	if !ok {
		panic(fmt.Sprintf("api: answer to AlterConfigs is a %T", answer))
	}
	answer.Resources = append(answer.Resources, resp.Resources...)
	return answer
}
