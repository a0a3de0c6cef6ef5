//! The list of allocator wrappers and library plumbing: functions that say nothing about who allocates.
//!
//! Stage: output. `wrappers.rs` decides with it. Each text has patterns with spaces in between: `*` matches any
//! characters, `?` matches one, also a space.

/// Functions of C. They match names without `::` only, so `sds*` does not match a C++ namespace.
pub(super) const FUNCTIONS: &[&str] = &[
    // The C library.
    "strdup strndup __strdup __strndup wcsdup *asprintf *asprintf_chk __vasprintf_internal getline getdelim",
    "__getline __getdelim _IO_* reallocarray __libc_*alloc* __libc_dynarray_* __libc_scratch_buffer_* malloc",
    "calloc realloc aligned_alloc memalign posix_memalign valloc pvalloc mmap mmap64 __mmap __mmap64 mremap",
    "malloc_hook_ini _obstack_* obstack_* sysmalloc sysmalloc_mmap* new_heap alloc_new_heap arena_get2",
    "_int_malloc _int_realloc _int_memalign tcache_init __*_malloc __*_calloc __*_realloc",
    // Wrappers that many programs have, under these names.
    "xmalloc* xcalloc* xrealloc* xzalloc* xstrdup* xstrndup* xmemdup* xnmalloc* xnrealloc* x2realloc*",
    "x2nrealloc* xpalloc* xasprintf xvasprintf xcharalloc xaligned_alloc xreallocarray ximalloc xicalloc",
    "xirealloc* do_xmalloc do_xmallocz *_xmalloc *_xrealloc *_xcalloc emalloc ecalloc erealloc estrdup",
    "safe_malloc* safe_calloc* safe_realloc* safe_strdup checked_malloc checked_calloc checked_realloc",
    "my_malloc my_calloc my_realloc my_strdup zmalloc* zcalloc* zrealloc* zstrdup ztrymalloc* ztrycalloc*",
    "ztryrealloc* mem_alloc malloc_or_die must_malloc kmalloc* kzalloc* kcalloc* krealloc* kvmalloc* kstrdup*",
    "rpl_malloc rpl_realloc rpl_calloc",
    // The C++ runtime, as compilers name it.
    "operator?new* __cxa_allocate_* __cxa_get_globals*",
    // Redis and Valkey.
    "sds* _sds*",
    // GLib.
    "g_malloc* g_try_malloc* g_realloc* g_try_realloc* g_aligned_alloc* g_slice_* g_strdup* g_strndup",
    "g_memdup* g_array_maybe_expand g_string_maybe_expand g_string_expand g_ptr_array_maybe_expand",
    // nginx, Apache.
    "ngx_alloc ngx_calloc ngx_memalign ngx_palloc* ngx_pnalloc ngx_pcalloc ngx_pmemalign ngx_slab_alloc*",
    "ngx_slab_calloc* ngx_pstrdup apr_palloc* apr_pcalloc* apr_pstrdup apr_pstrndup apr_pmemdup",
    "apr_allocator_alloc allocator_alloc",
    // OpenSSL, zlib, libpng, libuv, curl, libevent, jansson, libxml.
    "CRYPTO_*alloc* CRYPTO_strdup CRYPTO_strndup CRYPTO_memdup OPENSSL_malloc* OPENSSL_zalloc*",
    "OPENSSL_realloc* OPENSSL_strdup* png_malloc* png_calloc uv__malloc uv__calloc uv__realloc* uv__strdup",
    "curl_domalloc event_mm_* jsonp_malloc jsonp_strdup jsonp_strndup xmlStrdup xmlStrndup xmlMemMalloc",
    // FFmpeg, ImageMagick.
    "av_malloc* av_calloc av_realloc* av_fast_*alloc* av_strdup av_strndup av_memdup av_dynarray*",
    "AcquireMagickMemory AcquireQuantumMemory AcquireAlignedMemory ResizeMagickMemory ResizeQuantumMemory",
    // SQLite.
    "sqlite3Malloc* sqlite3_malloc* sqlite3Realloc* sqlite3_realloc* sqlite3DbMalloc* sqlite3DbRealloc*",
    "sqlite3DbStrDup sqlite3DbStrNDup sqlite3DbSpanDup sqlite3MemMalloc sqlite3MemRealloc mallocWithAlarm",
    "dbMallocRawFinish dbReallocFinish pcache1Alloc",
    // PostgreSQL, Samba.
    "palloc* repalloc* pstrdup pnstrdup MemoryContextAlloc* MemoryContextStrdup AllocSetAlloc*",
    "AllocSetRealloc GenerationAlloc* SlabAlloc* BumpAlloc* pg_malloc* pg_realloc pg_strdup talloc_*",
    "_talloc_* __talloc*",
    // Python.
    "PyMem_* _PyMem_* PyObject_Malloc PyObject_Calloc PyObject_Realloc _PyObject_Malloc* _PyObject_Calloc*",
    "_PyObject_Realloc* _PyObject_Arena* _PyObject_Alloc* PyObject_Init* _PyObject_New* _PyObject_GC_*",
    "PyObject_GC_New* PyType_GenericAlloc _PyType_AllocNoTrack gc_alloc pymalloc_* new_arena",
    "allocate_from_new_pool arena_map_* pymem_* _PyObject_DebugMallocAlloc _Py*Alloc _PyDebug*",
    // Ruby, Perl, PHP, Lua, Guile.
    "ruby_xmalloc* ruby_xcalloc* ruby_xrealloc* ruby_strdup objspace_x*alloc* rb_gc_impl_malloc",
    "rb_gc_impl_calloc rb_gc_impl_realloc rb_xmalloc* rb_xrealloc* rb_xcalloc* Perl_safesys*alloc",
    "Perl_more_bodies _emalloc* _ecalloc* _erealloc* _estrdup _estrndup _safe_emalloc __zend_malloc",
    "__zend_calloc __zend_realloc zend_mm_* l_alloc luaM_* scm_malloc scm_gc_malloc*",
    // Rust: the functions that the compiler makes.
    "__rust_alloc* __rust_realloc __rdl_alloc* __rdl_realloc __rg_alloc* __rg_realloc",
    // GCC, binutils, Git.
    "ggc_internal_*alloc* ggc_alloc* bfd_malloc* bfd_zmalloc* bfd_realloc* bfd_alloc* bfd_zalloc* strbuf_grow",
    // Browsers, the Java virtual machine.
    "pas_* AllocateHeap* ReallocateHeap* moz_xmalloc moz_xcalloc moz_xrealloc moz_xmemalign moz_arena_*alloc",
];

/// Paths of C++ and Rust functions.
pub(super) const PATHS: &[&str] = &[
    // The C++ library, and what extends it.
    "std::* __gnu_cxx::* __cxxabiv1::* *::operator?new* boost::container::* boost::unordered::*",
    "boost::movelib::* boost::allocator_* boost::detail::* boost::make_shared* boost::interprocess::*",
    "absl::*container_internal::* absl::*inlined_vector_internal::* absl::*cord_internal::* folly::detail::*",
    "folly::small_vector* folly::fbstring* eastl::* tbb::*alloc* fmt::*buffer*::grow llvm::safe_*alloc",
    "llvm::allocate_buffer llvm::SmallVector* llvm::DenseMap* llvm::StringMapImpl::*",
    "llvm::BumpPtrAllocatorImpl* va_heap::* va_gc::* va_gc_atomic::*",
    // Qt.
    "QArrayData::* QTypedArrayData* QArrayDataPointer* QArrayDataOps* QtPrivate::* QListData::* QHashData::*",
    "QHashPrivate::* QMapDataBase::* QMapData<* QVectorData::* QVector<* QList<* QHash<* QMap<*",
    "QString::QString QString::reallocData* QByteArray::QByteArray QByteArray::reallocData*",
    // Browsers, V8, Node.
    "WTF::fast*alloc* WTF::Partition* WTF::Vector* WTF::HashTable* bmalloc::* partition_alloc::*",
    "allocator_shim::* mozilla::Malloc* nsTArray_base* v8::internal::Malloced::*",
    "v8::internal::AllocWithRetry* v8::internal::AlignedAlloc* v8::internal::NewArray*",
    "v8::internal::AccountingAllocator::* v8::internal::Zone::* v8::internal::Segment* v8::base::*Malloc*",
    "v8::base::*Alloc* v8::base::OS::* node::Malloc* node::UncheckedMalloc* node::Calloc*",
    "node::UncheckedCalloc* node::Realloc* node::UncheckedRealloc* node::NodeArrayBufferAllocator::*",
    // The Java virtual machine.
    "os::malloc os::realloc os::strdup* Arena::Amalloc* Arena::grow CHeapObj* ChunkPool::allocate_chunk",
    // Rust.
    "alloc::* core::* hashbrown::* indexmap::* smallvec::* arrayvec::* __rustc::* compiler_builtins::*",
    "allocator_api2::* bumpalo::* bytes::bytes_mut::BytesMut::reserve*",
];

/// Traits of Rust whose methods are plumbing for every type: the compiler or the library implements them.
pub(super) const TRAITS: &[&str] = &["alloc::* core::alloc::* std::alloc::*"];

/// Source files of plumbing. Debug information names a constructor `vector`, without its namespace.
pub(super) const FILES: &[&str] = &[
    "*/include/c++/* */libstdc++-v3/* */libcxx/include/* /rustc/*/library/* */rustlib/src/rust/library/*",
    "*/registry/src/*/hashbrown-* */registry/src/*/smallvec-* */registry/src/*/indexmap-*",
];

/// Source files of Python that only load others: an `import` allocates for the module that has it.
pub(super) const PYTHON_FILES: &[&str] = &[
    "<frozen?importlib.* <frozen?zipimport> */importlib/_bootstrap.py */importlib/_bootstrap_external.py",
];

/// Scripts of Node whose functions allocate for their callers.
pub(super) const JAVASCRIPT_FILES: &[&str] = &["node:buffer node:internal/buffer buffer.js"];

/// Methods of Java that get native memory for their caller.
pub(super) const JAVA_METHODS: &[&str] = &[
    "jdk.internal.misc.Unsafe.* sun.misc.Unsafe.* java.nio.DirectByteBuffer.* java.nio.ByteBuffer.allocateDirect",
];

/// Functions in which processes and threads begin. If nothing else is outside of the plumbing, no function is the
/// user's.
pub(super) const STARTS: &[&str] = &[
    "_start __libc_start_main* __libc_start_call_main start_thread clone clone3 __clone __clone3",
    "__GI___clone* call_init* _dl_init _dl_start* _dl_relocate_object* execute_native_thread_routine*",
    "thread_start",
];
