package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/document"
	"github.com/rowmill/rowmill/store"
)

// deliveryList leads the keys of an endpoint's deliveries.
func deliveryList(endpoint string) []byte { return []byte(endpoint + "\x00") }

// indexed are the keys by which a delivery is found, none of nil, each behind its
// bucket.
func indexed(d *store.Delivery) (keys [][2][]byte) {
	if d == nil {
		return nil
	}
	keys = append(keys, [2][]byte{bucketDeliveryLists, append(deliveryList(d.Endpoint), d.ID...)})
	if d.Due != nil {
		keys = append(keys, [2][]byte{bucketDeliveriesDue, append(append(deliveryList(d.Endpoint), position(*d.Due)...), d.ID...)})
	}
	if d.Expires != nil {
		keys = append(keys, [2][]byte{bucketDeliveryExpires, append(position(*d.Expires), d.ID...)})
	}
	return keys
}

// firstDue is the key of the delivery of an endpoint that is due first, and the key
// of the endpoint among those that have some; nil where it has none.
func (t *tx) firstDue(endpoint string) (delivery, among []byte) {
	list := deliveryList(endpoint)
	key, _ := t.Bucket(bucketDeliveriesDue).Cursor().Seek(list)
	if !bytes.HasPrefix(key, list) {
		return nil, nil
	}
	return bytes.Clone(key), append(bytes.Clone(key[len(list):len(list)+positionBytes]), endpoint...)
}

// delivery reads a delivery and its document.
func (t *tx) delivery(id string) (d store.Delivery, doc []byte, err error) {
	raw := t.get(bucketDeliveries, []byte(id))
	if len(raw) < 8 {
		return d, nil, fmt.Errorf("delivery %s: %w", id, rowmill.ErrNotFound)
	}
	doc = bytes.Clone(raw[8:])
	if err := json.Unmarshal(doc, &d); err != nil {
		return d, nil, fmt.Errorf("decode delivery %s: %w", id, err)
	}
	d.Version, err = number(raw[:8])
	return d, doc, err
}

// index changes how a delivery of an endpoint is found: before is nil for a new
// one, after for one that goes.
func (t *tx) index(endpoint string, before, after *store.Delivery) error {
	_, was := t.firstDue(endpoint)
	for _, key := range indexed(before) {
		if err := t.del(key[0], key[1]); err != nil {
			return err
		}
	}
	for _, key := range indexed(after) {
		if err := t.put(key[0], key[1], present); err != nil {
			return err
		}
	}
	_, is := t.firstDue(endpoint)
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := t.del(bucketEndpointsDue, was); err != nil {
			return err
		}
	}
	if is != nil {
		return t.put(bucketEndpointsDue, is, present)
	}
	return nil
}

// saveDelivery writes a delivery over what is stored of it.
func (t *tx) saveDelivery(before *store.Delivery, stored []byte, d store.Delivery) error {
	doc, err := document.Rewrite(stored, d)
	if err != nil {
		return fmt.Errorf("encode delivery %s: %w", d.ID, err)
	}
	if err := t.index(d.Endpoint, before, &d); err != nil {
		return err
	}
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(doc)), uint64(d.Version))
	return t.put(bucketDeliveries, []byte(d.ID), append(raw, doc...))
}

// CreateDelivery stores a delivery.
func (s *Store) CreateDelivery(ctx context.Context, d store.Delivery) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("create delivery %s: %w", d.ID, err)
	}
	d.Version = 1
	return s.write(ctx, func(t *tx) error {
		if t.get(bucketDeliveries, []byte(d.ID)) != nil {
			return nil
		}
		return t.saveDelivery(nil, nil, d)
	})
}

// GetDelivery returns a delivery.
func (s *Store) GetDelivery(ctx context.Context, id string) (d store.Delivery, err error) {
	err = s.view(ctx, func(t *tx) (err error) {
		d, _, err = t.delivery(id)
		return err
	})
	return d, err
}

// PutDelivery replaces a delivery whose version still is d.Version.
func (s *Store) PutDelivery(ctx context.Context, d store.Delivery) (store.Delivery, error) {
	if err := d.Check(); err != nil {
		return d, fmt.Errorf("put delivery %s: %w", d.ID, err)
	}
	next := d
	next.Version++
	err := s.write(ctx, func(t *tx) error {
		before, doc, err := t.delivery(d.ID)
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
func (s *Store) ListDeliveries(ctx context.Context, endpoint string, page store.Page) (found []store.Delivery, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	err = s.view(ctx, func(t *tx) (err error) {
		found = nil
		more, err = t.ids(bucketDeliveryLists, deliveryList(endpoint), page, func(id string) error {
			d, _, err := t.delivery(id)
			found = append(found, d)
			return err
		})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list deliveries: %w", err)
	}
	return found, more, nil
}

// DueDeliveries returns deliveries that are due, one of each endpoint.
func (s *Store) DueDeliveries(ctx context.Context, now time.Time, limit int) (found []store.Delivery, err error) {
	err = s.view(ctx, func(t *tx) error {
		found = nil
		until, c := position(now), t.Bucket(bucketEndpointsDue).Cursor()
		for key, _ := c.First(); key != nil && len(found) < limit && bytes.Compare(key[:positionBytes], until) <= 0; key, _ = c.Next() {
			first, _ := t.firstDue(string(key[positionBytes:]))
			d, _, err := t.delivery(string(first[len(key)+1:]))
			if err != nil {
				return err
			}
			found = append(found, d)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries that are due: %w", err)
	}
	return found, nil
}

// DropDeliveries removes deliveries that have expired.
func (s *Store) DropDeliveries(ctx context.Context, now time.Time, limit int) (int, error) {
	var expired []string
	until := position(now)
	collect := func(t *tx) error {
		expired = nil
		c := t.Bucket(bucketDeliveryExpires).Cursor()
		for key, _ := c.First(); key != nil && len(expired) < limit && bytes.Compare(key[:positionBytes], until) <= 0; key, _ = c.Next() {
			expired = append(expired, string(key[positionBytes:]))
		}
		return nil
	}
	if err := s.view(ctx, collect); err != nil || len(expired) == 0 {
		return 0, err
	}
	err := s.write(ctx, func(t *tx) error {
		if err := collect(t); err != nil {
			return err
		}
		for _, id := range expired {
			d, _, err := t.delivery(id)
			if err == nil {
				err = t.index(d.Endpoint, &d, nil)
			}
			if err == nil {
				err = t.del(bucketDeliveries, []byte(id))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("remove deliveries that have expired: %w", err)
	}
	return len(expired), nil
}
