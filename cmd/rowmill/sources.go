package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/input/sources"
)

// openSources makes the sources of the settings. A source connects when a job reads it, so a source
// that is away stops no node.
func (s *nodeStorage) openSources() error {
	var all []sources.Source
	for _, name := range slices.Sorted(maps.Keys(s.Settings.Sources)) {
		set := s.Settings.Sources[name]
		source := sources.Source{Name: name, Accounts: set.Accounts, Prefixes: set.CleanPrefixes(), Writable: set.Write, WriteOnly: set.Read != nil && !*set.Read}
		if dir, inFolder := set.Folder(); inFolder {
			source.Place = sources.NewFolder(dir, source.Prefixes)
			all = append(all, source)
			continue
		}
		bucket, prefix := set.Storage().Bucket()
		place, err := s3.NewSource(s3.SourceConfig{
			Endpoint: set.Storage().ServiceURL(), Region: set.Region, Bucket: bucket, Prefix: prefix,
			Credentials: s3.Credentials(cmp.Or(set.Credentials, string(s3.EnvironmentCredentials))), File: set.CredentialsFile, Profile: set.Profile, Logger: s.Logger,
		})
		if err != nil {
			return fmt.Errorf("sources.%s: %w", name, err)
		}
		s.addCloser("source "+name, func(context.Context) error { return place.Close() })
		source.Place = place
		all = append(all, source)
	}
	s.Sources = sources.New(all)
	return nil
}
