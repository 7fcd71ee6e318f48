// Command api-machinery is a Kubernetes API server for tests: the library k8s.io/apiserver with etcd storage,
// watch cache, bookmarks, streaming lists and strict field validation. It serves the resources that Weir
// watches or installs. It has no controllers, no authorization, and no validation of values.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"weirtest/openapi"
)

type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

func (s strategy) NamespaceScoped() bool                                               { return s.namespaced }
func (strategy) PrepareForCreate(context.Context, runtime.Object)                      {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList              { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string             { return nil }
func (strategy) Canonicalize(runtime.Object)                                           {}
func (strategy) AllowCreateOnUpdate() bool                                             { return false }
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object)      {}
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string      { return nil }
func (strategy) AllowUnconditionalUpdate() bool                                        { return true }
func (strategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList { return nil }

// CheckGracefulDelete keeps a pod on a node until its grace period is over, as kube-apiserver does.
func (strategy) CheckGracefulDelete(_ context.Context, object runtime.Object, deletion *metav1.DeleteOptions) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok || deletion == nil {
		return false
	}
	period := int64(30)
	if deletion.GracePeriodSeconds != nil {
		period = *deletion.GracePeriodSeconds
	} else if pod.Spec.TerminationGracePeriodSeconds != nil {
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		period = 0
	}
	deletion.GracePeriodSeconds = &period
	return true
}

type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }
func (r *statusREST) Destroy()            {}
func (r *statusREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, o)
}
func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, o)
}

// selectable returns the labels and the fields by which a list can be filtered.
func selectable(object runtime.Object) (labels.Set, fields.Set, error) {
	meta, err := metaOf(object)
	if err != nil {
		return nil, nil, err
	}
	found := fields.Set{"metadata.name": meta.GetName()}
	if meta.GetNamespace() != "" {
		found["metadata.namespace"] = meta.GetNamespace()
	}
	if pod, ok := object.(*corev1.Pod); ok {
		found["spec.nodeName"] = pod.Spec.NodeName
		found["status.phase"] = string(pod.Status.Phase)
		found["status.podIP"] = pod.Status.PodIP
		found["spec.hostNetwork"] = fmt.Sprint(pod.Spec.HostNetwork)
	}
	return meta.GetLabels(), found, nil
}

func metaOf(object runtime.Object) (metav1.Object, error) {
	accessor, ok := object.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", object)
	}
	return accessor.GetObjectMeta(), nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type resource struct {
	group, version, kind, plural, singular string
	namespaced, status                     bool
	one, list                              runtime.Object
}

var resources = []resource{
	{"", "v1", "Pod", "pods", "pod", true, true, &corev1.Pod{}, &corev1.PodList{}},
	{"", "v1", "Node", "nodes", "node", false, true, &corev1.Node{}, &corev1.NodeList{}},
	{"", "v1", "Namespace", "namespaces", "namespace", false, false, &corev1.Namespace{}, &corev1.NamespaceList{}},
	{"", "v1", "ConfigMap", "configmaps", "configmap", true, false, &corev1.ConfigMap{}, &corev1.ConfigMapList{}},
	{"", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", true, false, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}},
	{"apps", "v1", "DaemonSet", "daemonsets", "daemonset", true, false, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}},
	{"rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "clusterrole", false, false, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}},
	{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", false, false, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}},
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	must(appsv1.AddToScheme(scheme))
	must(rbacv1.AddToScheme(scheme))
	must(metainternalversion.AddToScheme(scheme))
	for _, r := range resources {
		scheme.AddKnownTypes(schema.GroupVersion{Group: r.group, Version: runtime.APIVersionInternal}, r.one, r.list)
		gvk := schema.GroupVersionKind{Group: r.group, Version: r.version, Kind: r.kind}
		must(scheme.SetVersionPriority(gvk.GroupVersion()))
		must(scheme.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) { return label, value, nil }))
	}
	return scheme
}

// newObject returns a function that makes empty objects of the type of an object.
func newObject(scheme *runtime.Scheme, of runtime.Object) func() runtime.Object {
	kinds, _, err := scheme.ObjectKinds(of)
	must(err)
	return func() runtime.Object {
		object, err := scheme.New(kinds[0])
		must(err)
		return object
	}
}

func main() {
	etcdURL := flag.String("etcd", "http://127.0.0.1:2379", "")
	port := flag.Int("port", 6443, "")
	cert, key := flag.String("cert", "", ""), flag.String("key", "", "")
	token := flag.String("token", "admin-token", "")
	uncached := flag.String("uncached", "", "a resource without watch cache")
	inFlight := flag.Int("max-requests-in-flight", 400, "")
	flag.Parse()

	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MaxRequestsInFlight = *inFlight
	serving := options.NewSecureServingOptions().WithLoopback()
	serving.BindAddress, serving.BindPort = net.ParseIP("127.0.0.1"), *port
	serving.ServerCert.CertKey = options.CertKey{CertFile: *cert, KeyFile: *key}
	must(serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig))
	codec := codecs.LegacyCodec(corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion)
	etcd := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codec))
	etcd.StorageConfig.Transport.ServerList = []string{*etcdURL}
	etcd.StorageConfig.CompactionInterval = 0
	etcd.WatchCacheSizes = []string{*uncached + "#0"}
	must(etcd.ApplyTo(config))
	// The server does not limit the requests of the group system:masters.
	admin := &user.DefaultInfo{Name: "admin"}
	tokens := tokenfile.New(map[string]*user.DefaultInfo{*token: admin})
	config.Authentication.Authenticator = authenticator.Request(bearertoken.New(tokens))
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	namer := apiopenapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	server, err := config.Complete(nil).New("api-machinery", genericapiserver.NewEmptyDelegate())
	must(err)

	groups := map[string]map[string]rest.Storage{}
	for _, r := range resources {
		rules := strategy{scheme, names.SimpleNameGenerator, r.namespaced}
		store := &genericregistry.Store{
			NewFunc:                   newObject(scheme, r.one),
			NewListFunc:               newObject(scheme, r.list),
			DefaultQualifiedResource:  schema.GroupResource{Group: r.group, Resource: r.plural},
			SingularQualifiedResource: schema.GroupResource{Group: r.group, Resource: r.singular},
			CreateStrategy:            rules,
			UpdateStrategy:            rules,
			DeleteStrategy:            rules,
			TableConvertor:            rest.NewDefaultTableConvertor(schema.GroupResource{Group: r.group, Resource: r.plural}),
			PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
				return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: selectable}
			},
		}
		must(store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: config.RESTOptionsGetter, AttrFunc: selectable}))
		if groups[r.group] == nil {
			groups[r.group] = map[string]rest.Storage{}
		}
		groups[r.group][r.plural] = store
		if r.status {
			groups[r.group][r.plural+"/status"] = &statusREST{store}
		}
	}
	for name, stores := range groups {
		info := genericapiserver.NewDefaultAPIGroupInfo(name, scheme, runtime.NewParameterCodec(scheme), codecs)
		info.VersionedResourcesStorageMap["v1"] = stores
		if name == "" {
			must(server.InstallLegacyAPIGroup("/api", &info))
		} else {
			must(server.InstallAPIGroup(&info))
		}
	}
	must(server.PrepareRun().RunWithContext(genericapiserver.SetupSignalContext()))
}
