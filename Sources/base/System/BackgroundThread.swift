import CLinux
import Glibc

/// A thread of our own, for work that blocks: such work must not sit on Swift's cooperative pool.
public final class BackgroundThread: @unchecked Sendable {
    // Guarded by use: set once in `init`, joined at most once, by the owner or at the end of its life.
    private var handle: pthread_t
    private var isJoined = false

    private final class Work {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }

    /// Starts the thread. `name` is what `top -H` shows; the kernel keeps 15 bytes of it.
    public init(_ name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var handle = pthread_t()
        // SAFETY: the new thread takes over the one reference that `passRetained` made.
        let work = unsafe Unmanaged.passRetained(Work(body))
        let code = unsafe pthread_create(
            &handle, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let work = unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue()
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

    /// Waits for the thread's end. For the one owner, once.
    public func join() {
        precondition(!isJoined, "a thread can be joined once")
        isJoined = true
        _ = pthread_join(handle, nil)
    }

    /// The calling thread has what others leave of the processors from now on.
    public static func letOthersFirst() { _ = tw_let_others_first() }

    /// Lets the calling thread do nothing for a while.
    public static func rest(nanoseconds: UInt64) {
        var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        // SAFETY: both structures are local; a signal only makes the rest shorter.
        _ = unsafe nanosleep(&time, nil)
    }
}
