import CNats
import Synchronization

/// Error of a NATS server, of the connection to it, or of the library.
public struct NatsError: Error, Sendable, CustomStringConvertible {
    /// Operation that failed, as a verb phrase: "connect", "publish".
    public var operation: String
    public var message: String
    /// JetStream's code of the refusal; nil for other errors.
    public var code: Int?

    public init(operation: String, message: String, code: Int? = nil) {
        self.operation = operation
        self.message = message
        self.code = code
    }

    public var description: String { "\(operation): \(message)" }
}

/// Functions of libnats. The library is loaded by the first connection of the process.
struct NatsLibrary: @unchecked Sendable {
    // The pointers lead to functions of a library that stays loaded, and nothing changes them.
    let functions: tw_nats

    private static let loaded = Mutex<NatsLibrary?>(nil)

    /// Returns the loaded library. Throws if the machine does not have it.
    static func load() throws(NatsError) -> NatsLibrary {
        try loaded.withLock { known throws(NatsError) in
            if let known { return known }
            var functions = tw_nats()
            // SAFETY: the call fills the structure, and its text lives as long as the process.
            if let failure = unsafe tw_nats_load(&functions) {
                let reason = unsafe String(cString: failure)
                throw NatsError(
                    operation: "load libnats",
                    message: "\(reason) (a cluster needs it: install Debian's libnats3.4)")
            }
            let library = NatsLibrary(functions: functions)
            known = library
            return library
        }
    }

    /// Throws if a call of the library failed.
    func check(_ status: natsStatus, _ operation: String) throws(NatsError) {
        guard status != NATS_OK else { return }
        // SAFETY: both texts are static or belong to the calling thread until its next call.
        let text = unsafe functions.text(status).map { unsafe String(cString: $0) } ?? "unknown failure"
        let detail = unsafe functions.detail(nil).map { unsafe String(cString: $0) } ?? ""
        throw NatsError(operation: operation, message: detail.isEmpty || detail == text ? text : "\(text): \(detail)")
    }
}
