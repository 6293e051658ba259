import CLinux
import Glibc

/// Dedicated thread for blocking work, which must not occupy Swift's cooperative pool.
public final class BackgroundThread: @unchecked Sendable {
    // Guarded by use: `handle` is set once in `init`; the owner calls `join` at most once,
    // or `deinit` detaches the thread.
    private var handle: pthread_t
    private var isJoined = false

    private final class Work {
        let body: @Sendable () -> Void
        /// Descriptor table of the thread that starts this one. The new thread uses the same table.
        let table = DescriptorTable.current
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }

    /// Starts the thread. `top -H` shows `name`, of which the kernel keeps 15 bytes.
    public init(_ name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var handle = pthread_t()
        // SAFETY: the new thread takes over the one reference that `passRetained` made.
        let work = unsafe Unmanaged.passRetained(Work(body))
        let code = unsafe pthread_create(
            &handle, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let work = unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue()
                tw_number_descriptor_table(work.table)
                work.body()
                return nil
            }, work.toOpaque())
        guard code == 0 else {
            unsafe work.release()
            throw SystemError(operation: "start thread", subject: name, code: code)
        }
        // SAFETY: Swift passes a C string that lives for the call.
        _ = unsafe tw_name_thread(handle, String(name.prefix(15)))
        self.handle = handle
    }

    deinit {
        if !isJoined { _ = pthread_detach(handle) }
    }

    /// Waits until the thread ends. Only the owner may call this, once.
    public func join() {
        precondition(!isJoined, "a thread can be joined once")
        isJoined = true
        _ = pthread_join(handle, nil)
    }

    /// Lowers the priority of the calling thread. From now on it runs only when no other thread needs the processor.
    public static func letOthersFirst() { _ = tw_let_others_first() }

    /// Suspends the calling thread for at most `nanoseconds`.
    public static func rest(nanoseconds: UInt64) {
        var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        // SAFETY: both structures are local; a signal only makes the rest shorter.
        _ = unsafe nanosleep(&time, nil)
    }
}
