import Bytes
import Glibc

/// SQLite as a log: WAL, `synchronous=FULL`, one transaction for each batch. The library is loaded at run time, so the
/// program does not depend on SQLite.
@safe
final class SQLiteLog {
    private let library: SQLiteLibrary
    private var database: OpaquePointer?
    private var insertion: OpaquePointer?
    private var next: Int64 = 0

    init(_ library: SQLiteLibrary, path: String) throws {
        self.library = library
        // SAFETY: SQLite fills the local; a handle it gives is closed in `deinit`.
        let code = unsafe library.open(path, &database)
        guard code == 0 else { throw BenchFailure("SQLite cannot open \(path) (\(code))") }
        try run("PRAGMA journal_mode=WAL")
        try run("PRAGMA synchronous=FULL")
        // With exclusive locking, SQLite keeps its index of the WAL in its own memory, which is faster. No other
        // process opens the file.
        try run("PRAGMA locking_mode=EXCLUSIVE")
        try run("CREATE TABLE entry (offset INTEGER PRIMARY KEY, payload BLOB)")
        // SAFETY: the statement is finalised in `deinit`.
        let prepared = unsafe library.prepare(database, "INSERT INTO entry VALUES (?, ?)", -1, &insertion, nil)
        guard prepared == 0 else { throw failure("prepare") }
    }

    deinit {
        // SAFETY: both are this object's own; SQLite allows null for either.
        _ = unsafe library.finalize(insertion)
        _ = unsafe library.close(database)
    }

    func append(_ payload: RawSpan, count: Int) throws {
        try run("BEGIN")
        for _ in 0..<count { try insert(payload) }
        try run("COMMIT")
    }

    private func insert(_ payload: RawSpan) throws {
        // SAFETY: the bytes live until the statement has run; null for the destructor says that they are not copied.
        unsafe payload.withUnsafeBytes { bytes in
            _ = unsafe library.bindNumber(insertion, 1, next)
            _ = unsafe library.bindBytes(insertion, 2, bytes.baseAddress, Int32(bytes.count), nil)
        }
        next += 1
        // SAFETY: the statement lives; 101 is SQLITE_DONE.
        let code = unsafe library.step(insertion)
        _ = unsafe library.reset(insertion)
        if code != 101 { throw failure("insert") }
    }

    private func run(_ sql: String) throws {
        // SAFETY: Swift passes a C string that lives for the call.
        if unsafe library.execute(database, sql, nil, nil, nil) != 0 { throw failure(sql) }
    }

    private func failure(_ what: String) -> BenchFailure {
        // SAFETY: SQLite's message lives until the next call; String copies it.
        let words = unsafe library.message(database).map { unsafe String(cString: $0) }
        return BenchFailure("SQLite: \(what): \(words ?? "?")")
    }
}

/// Functions of libsqlite3 that the benchmark calls. The library is never unloaded.
@safe
struct SQLiteLibrary {
    typealias Text = UnsafePointer<CChar>
    typealias Open = @convention(c) (Text?, UnsafeMutablePointer<OpaquePointer?>?) -> Int32
    typealias OnHandle = @convention(c) (OpaquePointer?) -> Int32
    typealias Execute =
        @convention(c) (OpaquePointer?, Text?, OpaquePointer?, OpaquePointer?, OpaquePointer?) -> Int32
    typealias Prepare =
        @convention(c) (OpaquePointer?, Text?, Int32, UnsafeMutablePointer<OpaquePointer?>?, OpaquePointer?) -> Int32
    typealias BindNumber = @convention(c) (OpaquePointer?, Int32, Int64) -> Int32
    typealias BindBytes = @convention(c) (OpaquePointer?, Int32, UnsafeRawPointer?, Int32, OpaquePointer?) -> Int32
    typealias Message = @convention(c) (OpaquePointer?) -> Text?

    let open: Open
    let close: OnHandle
    let execute: Execute
    let prepare: Prepare
    let finalize: OnHandle
    let bindNumber: BindNumber
    let bindBytes: BindBytes
    let step: OnHandle
    let reset: OnHandle
    let message: Message

    /// Loads the library. If it is missing, the error says how to install it.
    init() throws {
        // SAFETY: the handle is never closed, so its functions stay; each type above is its function's in sqlite3.h,
        // with pointers that we never follow as opaque ones.
        guard let handle = unsafe dlopen("libsqlite3.so.0", RTLD_NOW) else {
            throw BenchFailure("SQLite, the baseline, is not installed", hint: "apt-get install libsqlite3-0")
        }
        unsafe open = try Self.function("open", handle)
        unsafe close = try Self.function("close", handle)
        unsafe execute = try Self.function("exec", handle)
        unsafe prepare = try Self.function("prepare_v2", handle)
        unsafe finalize = try Self.function("finalize", handle)
        unsafe bindNumber = try Self.function("bind_int64", handle)
        unsafe bindBytes = try Self.function("bind_blob", handle)
        unsafe step = try Self.function("step", handle)
        unsafe reset = try Self.function("reset", handle)
        unsafe message = try Self.function("errmsg", handle)
    }

    private static func function<T>(_ name: String, _ handle: UnsafeMutableRawPointer) throws -> T {
        // SAFETY: as above.
        guard let address = unsafe dlsym(handle, "sqlite3_" + name) else {
            throw BenchFailure("libsqlite3 has no sqlite3_\(name)")
        }
        return unsafe unsafeBitCast(address, to: T.self)
    }
}
