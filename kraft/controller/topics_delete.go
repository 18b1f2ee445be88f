package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// DeleteTopics decides DeleteTopics (20) v1-6: v5 has messages and refuses when over the mutation quota, v6 takes
// topic ids. The answers are shuffled, so that their order does not tell an absent topic from a hidden one.
func (d *Decider) DeleteTopics(req *kmsg.DeleteTopicsRequest) Result {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	res := Result{Response: resp, Atomic: true}
	if !d.cfg.DeleteTopicEnable {
		d.deletionDisabled(req, resp)
		return res
	}
	del := &deletion{d: d, resp: resp, names: make(map[protocol.UUID]string)}
	names, ids := del.collect(req)
	del.addIDs(ids)
	del.addNames(names)
	for _, id := range del.order {
		name, ok := del.names[id]
		if !ok {
			continue
		}
		t := d.Image.Topics.ByID(id)
		if f := d.req.charge(t.NumPartitions()); f != nil {
			del.answer(&name, id, f)
			continue
		}
		r := metadata.NewRemoveTopicRecord()
		r.TopicID = id
		res.Records = append(res.Records, r)
		del.answer(&name, id, nil)
	}
	d.Rand.Shuffle(len(resp.Topics), func(i, j int) {
		resp.Topics[i], resp.Topics[j] = resp.Topics[j], resp.Topics[i]
	})
	return res
}

// deletionDisabled answers when delete.topic.enable is false.
func (d *Decider) deletionDisabled(req *kmsg.DeleteTopicsRequest, resp *kmsg.DeleteTopicsResponse) {
	f := refuseSilent(codeTopicDeletionDisabled)
	if req.Version < 3 {
		f = refuse(codeInvalidRequest, "This version does not support topic deletion.")
	}
	del := &deletion{d: d, resp: resp}
	for _, name := range req.TopicNames {
		del.answer(&name, protocol.UUID{}, f)
	}
	for _, t := range req.Topics {
		del.answer(t.Topic, t.TopicID, f)
	}
}

// deletion resolves the topics of one request, which names them by name, by id, or wrongly.
type deletion struct {
	d    *Decider
	resp *kmsg.DeleteTopicsResponse
	// names are the topics that will be deleted, order their sequence.
	names   map[protocol.UUID]string
	order   []protocol.UUID
	idTwice []protocol.UUID
}

func (del *deletion) answer(name *string, id protocol.UUID, f *Fault) {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID = name, id
	t.ErrorCode, t.ErrorMessage = codeAndMessage(f)
	del.resp.Topics = append(del.resp.Topics, t)
}

// collect gives the names and ids that are named once, and answers what is wrong with the others.
func (del *deletion) collect(req *kmsg.DeleteTopicsRequest) (names []string, ids []protocol.UUID) {
	names = slices.Clone(req.TopicNames)
	for _, t := range req.Topics {
		id := protocol.UUID(t.TopicID)
		switch {
		case t.Topic == nil && id == protocol.ZeroUUID:
			del.answer(nil, id, refuse(codeInvalidRequest, "Neither topic name nor id were specified."))
		case t.Topic == nil:
			ids = append(ids, id)
		case id == protocol.ZeroUUID:
			names = append(names, *t.Topic)
		default:
			del.answer(t.Topic, id, refuse(codeInvalidRequest, "You may not specify both topic name and topic id."))
		}
	}
	names, twice := splitDuplicates(names)
	for _, name := range twice {
		del.answer(&name, protocol.ZeroUUID, refuse(codeInvalidRequest, "Duplicate topic name."))
	}
	ids, del.idTwice = splitDuplicates(ids)
	for _, id := range del.idTwice {
		del.answer(nil, id, refuse(codeInvalidRequest, "Duplicate topic id."))
	}
	return names, ids
}

// may says whether the caller may see and may delete a topic.
func (del *deletion) may(name string) (describe, remove bool) {
	req := del.d.req
	if req.allowedOnCluster(opDelete) {
		return true, true
	}
	return req.allowed(opDescribe, resourceTopic, name), req.allowed(opDelete, resourceTopic, name)
}

func (del *deletion) addIDs(ids []protocol.UUID) {
	for _, id := range ids {
		t := del.d.Image.Topics.ByID(id)
		if t == nil {
			del.answer(nil, id, refuseBare(codeUnknownTopicID))
			continue
		}
		describe, remove := del.may(t.Name)
		switch {
		case remove:
			del.names[id] = t.Name
			del.order = append(del.order, id)
		case describe:
			del.answer(&t.Name, id, refuseBare(codeTopicAuthorization))
		default:
			del.answer(nil, id, refuseBare(codeTopicAuthorization))
		}
	}
}

func (del *deletion) addNames(names []string) {
	for _, name := range names {
		describe, remove := del.may(name)
		if !describe {
			del.answer(&name, protocol.ZeroUUID, refuseBare(codeTopicAuthorization))
			continue
		}
		t := del.d.Image.Topics.ByName(name)
		switch {
		case t == nil:
			del.answer(&name, protocol.ZeroUUID, refuseBare(codeUnknownTopicOrPartition))
		case !remove:
			del.answer(&name, protocol.ZeroUUID, refuseBare(codeTopicAuthorization))
		case slices.Contains(del.idTwice, t.ID) || del.names[t.ID] != "":
			delete(del.names, t.ID)
			del.idTwice = append(del.idTwice, t.ID)
			del.answer(&name, t.ID, refuse(codeInvalidRequest,
				"The provided topic name maps to an ID that was already supplied."))
		default:
			del.names[t.ID] = name
			del.order = append(del.order, t.ID)
		}
	}
}
