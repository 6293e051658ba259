import Glibc

/// Failed system call: the operation, its subject and the kernel's error code.
public struct SystemError: Error, Sendable, Equatable {
    public let operation: String
    public let subject: String
    public let code: Int32

    public init(operation: String, subject: String, code: Int32) {
        self.operation = operation
        self.subject = subject
        self.code = code
    }

    /// True if the peer reset the connection. The kernel reports one of two codes, depending on whether bytes were
    /// waiting to be sent.
    public var isReset: Bool { code == ECONNRESET || code == EPIPE }

    /// Description of the error code by the C library.
    public var reason: String {
        // SAFETY: strerror returns a C string that lives at least until the next call on this thread.
        unsafe String(cString: strerror(code))
    }
}

extension SystemError: CustomStringConvertible {
    public var description: String { "\(operation) \(subject): \(reason)" }
}

/// Runs a system call that returns -1 and sets errno on failure. Repeats the call while signals interrupt it.
///
/// This function reads errno directly after the call, because reference counting may run other code between two
/// statements.
@inline(never)
public func systemCall<T: FixedWidthInteger>(
    _ operation: @autoclosure () -> String, _ subject: @autoclosure () -> String, _ body: () -> T
) throws(SystemError) -> T {
    while true {
        let result = body()
        if result != -1 { return result }
        let code = errno
        if code != EINTR { throw SystemError(operation: operation(), subject: subject(), code: code) }
    }
}
