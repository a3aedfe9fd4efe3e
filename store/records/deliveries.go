package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// deliveryListPrefix returns the key prefix of an endpoint's deliveries.
func deliveryListPrefix(endpoint string) []byte { return []byte(endpoint + "\x00") }

// A deliveryIndexKey is a key with the index table that it belongs to.
type deliveryIndexKey struct {
	table kv.Table
	key   []byte
}

// deliveryIndexKeys returns the keys of a delivery in all index tables; nil if d is nil.
func deliveryIndexKeys(d *store.WebhookDelivery) (keys []deliveryIndexKey) {
	if d == nil {
		return nil
	}
	keys = append(keys, deliveryIndexKey{tableDeliveryLists, append(deliveryListPrefix(d.Endpoint), d.ID...)})
	if d.Due != nil {
		keys = append(keys, deliveryIndexKey{tableDeliveriesDue, append(append(deliveryListPrefix(d.Endpoint), encodeTime(*d.Due)...), d.ID...)})
	}
	if d.Expires != nil {
		keys = append(keys, deliveryIndexKey{tableDeliveryExpires, append(encodeTime(*d.Expires), d.ID...)})
	}
	return keys
}

// decodeDelivery decodes a stored delivery and returns its JSON document too. raw must
// not be empty.
func decodeDelivery(id string, raw []byte) (d store.WebhookDelivery, doc []byte, err error) {
	if len(raw) < 8 {
		return d, nil, fmt.Errorf("delivery %s is cut off", id)
	}
	doc = bytes.Clone(raw[8:])
	if err := json.Unmarshal(doc, &d); err != nil {
		return d, nil, fmt.Errorf("decode delivery %s: %w", id, err)
	}
	d.Version, err = decodeNumber(raw[:8])
	return d, doc, err
}

// readDelivery reads a delivery and its stored JSON document, or returns rowmill.ErrNotFound.
func (t *tx) readDelivery(id string) (d store.WebhookDelivery, doc []byte, err error) {
	raw, err := t.Get(tableDeliveries, []byte(id))
	switch {
	case err != nil:
		return d, nil, err
	case raw == nil:
		return d, nil, fmt.Errorf("delivery %s: %w", id, rowmill.ErrNotFound)
	}
	return decodeDelivery(id, raw)
}

func (t *tx) getDelivery(id string) (store.WebhookDelivery, error) {
	d, _, err := t.readDelivery(id)
	return d, err
}

// reindexDelivery updates the indexes for a delivery of an endpoint. before is nil for a new
// delivery, after is nil for a removed one.
func (t *tx) reindexDelivery(endpoint string, before, after *store.WebhookDelivery) error {
	for _, key := range deliveryIndexKeys(before) {
		t.Delete(key.table, key.key)
	}
	for _, key := range deliveryIndexKeys(after) {
		t.Put(key.table, key.key, nil)
	}
	if before != nil && before.Due != nil || after != nil && after.Due != nil {
		return t.indexEndpoint(endpoint, before, after)
	}
	return nil
}

// indexEndpoint updates the endpoint's entry in table endpointsdue, which sorts
// endpoints by their first due delivery. Every change of a delivery also writes the
// endpoint's key in table endpoints. So if two changes happen at the same time, one of
// them conflicts and runs again.
func (t *tx) indexEndpoint(endpoint string, before, after *store.WebhookDelivery) error {
	was, err := t.Get(tableEndpoints, []byte(endpoint))
	if err != nil {
		return err
	}
	first := was
	if before != nil && before.Due != nil && bytes.Equal(encodeTime(*before.Due), was) {
		if first, err = t.firstDueExcept(endpoint, before.ID); err != nil {
			return err
		}
	}
	if after != nil && after.Due != nil {
		if at := encodeTime(*after.Due); first == nil || bytes.Compare(at, first) < 0 {
			first = at
		}
	}
	if was != nil && !bytes.Equal(was, first) {
		t.Delete(tableEndpointsDue, append(bytes.Clone(was), endpoint...))
	}
	if first == nil {
		t.Delete(tableEndpoints, []byte(endpoint))
		return nil
	}
	t.Put(tableEndpoints, []byte(endpoint), first)
	t.Put(tableEndpointsDue, append(bytes.Clone(first), endpoint...), nil)
	return nil
}

// firstDueExcept returns the encoded due time of the endpoint's first due delivery, not
// counting the delivery with this id. It returns nil if no other delivery of the endpoint
// has a due time.
func (t *tx) firstDueExcept(endpoint, id string) ([]byte, error) {
	list := deliveryListPrefix(endpoint)
	for e, err := range t.scanUndamaged(kv.PrefixRange(tableDeliveriesDue, list)) {
		if err != nil {
			return nil, err
		}
		if string(e.Key[len(list)+positionBytes:]) != id {
			return bytes.Clone(e.Key[len(list) : len(list)+positionBytes]), nil
		}
	}
	return nil, nil
}

// saveDelivery writes a delivery and its index entries. before and stored are the
// delivery and its JSON document before the change; both are nil for a new delivery.
func (t *tx) saveDelivery(before *store.WebhookDelivery, stored []byte, d store.WebhookDelivery) error {
	doc, err := jsonpreserve.Rewrite(stored, d)
	if err != nil {
		return fmt.Errorf("encode delivery %s: %w", d.ID, err)
	}
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(doc)), uint64(d.Version))
	t.Put(tableDeliveries, []byte(d.ID), append(raw, doc...))
	return t.reindexDelivery(d.Endpoint, before, &d)
}

// CreateDelivery stores a delivery.
func (s *Store) CreateDelivery(ctx context.Context, d store.WebhookDelivery) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("create delivery %s: %w", d.ID, err)
	}
	d.Version = 1
	return s.write(ctx, func(t *tx) error {
		if known, err := t.Get(tableDeliveries, []byte(d.ID)); err != nil || known != nil {
			return err
		}
		return t.saveDelivery(nil, nil, d)
	})
}

// GetDelivery returns a delivery.
func (s *Store) GetDelivery(ctx context.Context, id string) (d store.WebhookDelivery, err error) {
	return viewResult(ctx, s, func(t *tx) (store.WebhookDelivery, error) { return t.getDelivery(id) })
}

// PutDelivery replaces a delivery whose stored version equals d.Version.
func (s *Store) PutDelivery(ctx context.Context, d store.WebhookDelivery) (store.WebhookDelivery, error) {
	if err := d.Check(); err != nil {
		return d, fmt.Errorf("put delivery %s: %w", d.ID, err)
	}
	next := d
	next.Version++
	err := s.write(ctx, func(t *tx) error {
		before, doc, err := t.readDelivery(d.ID)
		switch {
		case err != nil:
			return fmt.Errorf("put: %w", err)
		case before.Version != d.Version:
			return fmt.Errorf("put delivery %s: its version is %d, not %d: %w", d.ID, before.Version, d.Version, rowmill.ErrConflict)
		case before.Account != d.Account || before.Endpoint != d.Endpoint:
			return fmt.Errorf("put delivery %s: its account and endpoint cannot change", d.ID)
		}
		return t.saveDelivery(&before, doc, next)
	})
	if err != nil {
		return d, err
	}
	return next, nil
}

// ListDeliveries returns a page of an endpoint's deliveries.
func (s *Store) ListDeliveries(ctx context.Context, endpoint string, page store.PageRequest) (found []store.WebhookDelivery, more bool, err error) {
	return readPage(ctx, s, "list deliveries", tableDeliveryLists, deliveryListPrefix(endpoint), page, (*tx).getDelivery, tableDeliveries)
}

// DueDeliveries returns due deliveries, one for each endpoint.
func (s *Store) DueDeliveries(ctx context.Context, now time.Time, limit int) (found []store.WebhookDelivery, err error) {
	return viewList(ctx, s, "list deliveries that are due", func(t *tx) (found []store.WebhookDelivery, err error) {
		endpoints, err := t.scanIDs(kv.Range{Table: tableEndpointsDue, To: keyAfterTime(nil, now)}, positionBytes, math.MaxInt)
		if err != nil {
			return nil, err
		}
		for len(endpoints) > 0 && len(found) < limit {
			some := endpoints[:min(limit-len(found), len(endpoints))]
			endpoints = endpoints[len(some):]
			first, err := t.firstDue(some, now)
			for i := 0; i < len(some) && err == nil; i++ {
				var d *store.WebhookDelivery
				if d, err = t.findDueDelivery(some[i], first[some[i]], now); d != nil {
					found = append(found, *d)
				}
			}
			if err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

// firstDue returns, for each endpoint, the id of the delivery that has been due for
// longest at now.
func (t *tx) firstDue(endpoints []string, now time.Time) (first map[string]string, err error) {
	first = map[string]string{}
	var ranges []kv.Range
	for _, endpoint := range endpoints {
		list := deliveryListPrefix(endpoint)
		ranges = append(ranges, kv.Range{Table: tableDeliveriesDue, From: list, To: keyAfterTime(list, now), Limit: 1})
	}
	for e, err := range t.scanUndamaged(ranges...) {
		if err != nil {
			return nil, err
		}
		endpoint, rest, _ := bytes.Cut(e.Key, []byte{0})
		first[string(endpoint)] = string(rest[positionBytes:])
		t.Prefetch(tableDeliveries, rest[positionBytes:])
	}
	return first, nil
}

// findDueDelivery returns the delivery of an endpoint that has been due for longest at now, nil for
// none. It first tries the delivery with the id first. It tries other deliveries only if
// this one is damaged or is no longer due.
func (t *tx) findDueDelivery(endpoint, first string, now time.Time) (*store.WebhookDelivery, error) {
	try := func(id string) (*store.WebhookDelivery, error) {
		d, _, err := t.readDelivery(id)
		switch {
		case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		case d.Due == nil || d.Due.After(now):
			return nil, nil
		}
		return &d, nil
	}
	if first != "" {
		if d, err := try(first); d != nil || err != nil {
			return d, err
		}
	}
	list := deliveryListPrefix(endpoint)
	for e, err := range t.scanUndamaged(kv.Range{Table: tableDeliveriesDue, From: list, To: keyAfterTime(list, now)}) {
		if err != nil {
			return nil, err
		}
		if d, err := try(string(e.Key[len(list)+positionBytes:])); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// DropExpiredDeliveries removes deliveries that have expired.
func (s *Store) DropExpiredDeliveries(ctx context.Context, now time.Time, limit int) (int, error) {
	var expired []string // keys of tableDeliveryExpires
	find := func(t *tx) (err error) {
		expired, err = t.scanIDs(kv.Range{Table: tableDeliveryExpires, To: keyAfterTime(nil, now)}, 0, limit)
		return err
	}
	if err := s.view(ctx, find); err != nil || len(expired) == 0 {
		return 0, err
	}
	dropped := 0
	err := s.write(ctx, func(t *tx) error {
		dropped = 0
		if err := find(t); err != nil {
			return err
		}
		for _, key := range expired {
			if len(key) < positionBytes {
				return fmt.Errorf("a key of table %s is cut off", tableDeliveryExpires)
			}
			id := key[positionBytes:]
			d, _, err := t.readDelivery(id)
			switch {
			case err == nil:
				err = t.reindexDelivery(d.Endpoint, &d, nil)
			case t.logIfDamaged(err), errors.Is(err, rowmill.ErrNotFound): // the lists skip it
				err = nil
			}
			if err != nil {
				return err
			}
			t.Delete(tableDeliveryExpires, []byte(key))
			t.Delete(tableDeliveries, []byte(id))
			dropped++
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("remove deliveries that have expired: %w", err)
	}
	return dropped, nil
}
