package settings

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/input/sources"
)

// Source is a place with files that jobs may read and write, although their clients have no
// credentials for it.
// The name of the source is its key in Settings.Sources.
type Source struct {
	// URL is s3://BUCKET or s3://BUCKET/PREFIX, or file:///DIRECTORY. All nodes that own
	// jobs must be able to use it. Required.
	URL string `yaml:"url"`

	// Region is the region of the bucket, and Endpoint the URL of its S3 service. Default:
	// empty, as for ObjectStorage.
	Region   string `yaml:"region"`
	Endpoint string `yaml:"endpoint"`

	// Credentials says where the credentials for S3 are: environment (the AWS_ variables;
	// without them requests are not signed, as for a public bucket), file (CredentialsFile),
	// or role (the web identity of a pod, or the role of the machine). Default: environment.
	Credentials string `yaml:"credentials"`

	// CredentialsFile is a file in the format of the AWS programs, and Profile the profile in
	// it. Defaults: ~/.aws/credentials, and the profile "default".
	CredentialsFile string `yaml:"credentials_file"`
	Profile         string `yaml:"profile"`

	// Read says whether jobs may read the source, and Write whether jobs may write their results
	// to it. Defaults: true and false.
	Read  *bool `yaml:"read"`
	Write bool  `yaml:"write"`

	// Accounts are the accounts that may use the source. Default: empty, which means all
	// accounts. For other accounts the source does not exist.
	Accounts []string `yaml:"accounts"`

	// Prefixes are the folders that jobs may use, such as reviews/. Default: empty, which
	// means all of URL.
	Prefixes []string `yaml:"prefixes"`
}

const fileScheme = "file://"

// Folder returns the directory in URL. ok is false if URL names no directory.
func (s Source) Folder() (dir string, ok bool) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme+"://" != fileScheme || u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	return u.Path, true
}

// Storage returns the bucket and the S3 service of the source.
func (s Source) Storage() ObjectStorage {
	return ObjectStorage{URL: s.URL, Endpoint: s.Endpoint, Region: s.Region}
}

// CleanPrefixes returns Prefixes in the form that package sources uses. They must be valid.
func (s Source) CleanPrefixes() (clean []string) {
	for _, folder := range s.Prefixes {
		folder, _ = sources.CleanPrefix(folder) // Validate has checked them
		clean = append(clean, folder)
	}
	return clean
}

// checkSources checks the names and the settings of all sources.
func (s Settings) checkSources(check requireFunc) {
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		err := sources.CheckName(name)
		check(err == nil, joinPath("sources", name), "the name of a source %v", err)
		s.Sources[name].checkAs(joinPath("sources", name), check)
	}
}

// checkAs checks a source. key is the name of its section.
func (s Source) checkAs(key string, check requireFunc) {
	_, inFolder := s.Folder()
	bucket, _ := s.Storage().Bucket()
	inS3 := strings.HasPrefix(s.URL, s3Scheme) && bucket != ""
	check(inFolder || inS3, key+".url", "must be s3://BUCKET, s3://BUCKET/PREFIX or file:///DIRECTORY, is %q", s.URL)
	for _, only := range []namedValue{{"region", s.Region}, {"endpoint", s.Endpoint}, {"credentials", s.Credentials}, {"credentials_file", s.CredentialsFile}, {"profile", s.Profile}} {
		check(!inFolder || only.value == "", key+"."+only.key, "is only for a source in S3; remove it")
	}
	check(s.Endpoint == "" || isBaseURL(s.Endpoint), key+".endpoint", "must be an http or https URL without query, is %q", s.Endpoint)
	check(slices.Contains([]string{"", "environment", "file", "role"}, s.Credentials), key+".credentials", "must be environment, file or role, is %q", s.Credentials)
	check(s.Credentials == "file" || s.CredentialsFile == "", key+".credentials_file", "needs credentials: file")
	check(s.Credentials == "file" || s.Profile == "", key+".profile", "needs credentials: file")
	check(s.Write || s.Read == nil || *s.Read, key+".read", "must not be false unless write is true; remove the source instead")
	for i, folder := range s.Prefixes {
		_, err := sources.CleanPrefix(folder)
		check(err == nil, fmt.Sprintf("%s.prefixes[%d]", key, i), "%v; it is %q", err, folder)
	}
	for i, account := range s.Accounts {
		check(account != "", fmt.Sprintf("%s.accounts[%d]", key, i), "must name an account; leave accounts out to allow all accounts")
	}
}
