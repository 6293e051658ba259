import CLinux
import Glibc
import Synchronization

/// Program that this process starts and watches until it ends.
///
/// A dedicated thread starts the child and waits for its end. The reason: with `prctl(PR_SET_PDEATHSIG)`, the kernel
/// signals a child when the *thread* that started it ends. This thread lives exactly as long as the child, so the child
/// gets that signal only when this whole process ends.
public final class ChildProcess: Sendable {
    public enum Ending: Sendable, Equatable {
        case exited(Int32)
        case killed(signal: Int32)
    }

    /// Resources that a child used before it ended.
    public struct Usage: Sendable, Equatable {
        /// Processor time of the child, in user and kernel mode.
        public var cpuNanoseconds: UInt64 = 0
    }

    private struct State {
        var processID: pid_t = 0
        var failure: SystemError?
        var ending: Ending?
        var usage = Usage()
    }

    /// State shared with the watching thread, which may outlive the object.
    private final class Shared: Sendable {
        let state = Mutex(State())
        let started: Wake
        let ended: Wake

        init() throws(SystemError) {
            started = try Wake()
            ended = try Wake()
        }
    }

    private let shared: Shared
    public let name: String

    /// Ends of pipes that become the child's standard input and output. The caller must still close them.
    public struct Ends: Sendable {
        public var input: Int32
        public var output: Int32
        /// Descriptor for the child's standard error. If nil, standard error is chosen as without `ends`.
        public var errors: Int32?

        public init(input: Int32, output: Int32, errors: Int32? = nil) {
            self.input = input
            self.output = output
            self.errors = errors
        }
    }

    /// Starts the program that `arguments[0]` names, with an empty input. Its output and errors are written to the file
    /// `output`; if that is nil, to those of this process. `ends` replaces the input and the output, and the errors if
    /// it has a descriptor for them.
    ///
    /// - Parameter isOnlyEnvironment: true if the child inherits no environment variables of this process.
    public init(
        _ arguments: [String], output: String? = nil, ends: Ends? = nil, environment: [String: String] = [:],
        isOnlyEnvironment: Bool = false
    ) throws(SystemError) {
        let shared = try Shared()
        self.shared = shared
        name = arguments.first ?? ""
        _ = try BackgroundThread("child") {
            let variables =
                isOnlyEnvironment ? environment.map { "\($0.key)=\($0.value)" } : ChildProcess.merged(environment)
            ChildProcess.spawn(arguments, output, ends, variables, shared)
            shared.started.ring()
            if shared.state.withLock({ $0.failure == nil }) { ChildProcess.watch(shared) }
        }
        shared.started.sleep(milliseconds: 60_000)
        if let failure = shared.state.withLock({ $0.failure }) { throw failure }
    }

    public var processID: pid_t { shared.state.withLock { $0.processID } }
    public var ending: Ending? { shared.state.withLock { $0.ending } }
    public var isRunning: Bool { ending == nil }
    /// Resources that the child used. Known once the child has ended.
    public var usage: Usage { shared.state.withLock { $0.usage } }

    /// Waits for the end of the child. Returns nil if the child has not ended within the time.
    @discardableResult
    public func wait(milliseconds: Int = .max) -> Ending? {
        let limit = milliseconds == .max ? -1 : milliseconds
        shared.ended.sleep(milliseconds: limit)
        return ending
    }

    public func signal(_ number: Int32) {
        shared.state.withLock { state in
            // A signal is sent only while the child runs. Afterwards another process may have the same process id.
            if state.ending == nil, state.processID > 0 { _ = kill(state.processID, number) }
        }
    }

    // MARK: On the watching thread

    private static func spawn(
        _ arguments: [String], _ output: String?, _ ends: Ends?, _ environment: [String], _ shared: Shared
    ) {
        let list = CStringArray(arguments)
        let variables = CStringArray(environment)
        var processID: pid_t = 0
        // SAFETY: the actions are initialised before and destroyed after use; the arrays live through the call.
        var actions = unsafe posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        let code = withExtendedLifetime((list, variables)) {
            unsafe posix_spawn_file_actions_init(&actions)
            defer { unsafe posix_spawn_file_actions_destroy(&actions) }
            unsafe posix_spawnattr_init(&attributes)
            defer { unsafe posix_spawnattr_destroy(&attributes) }
            // The child has its own process group, so Ctrl-C at the terminal reaches only this process, which then
            // stops the child. The child begins without blocked signals, even if this thread blocks some.
            var none = sigset_t()
            unsafe sigemptyset(&none)
            unsafe posix_spawnattr_setsigmask(&attributes, &none)
            unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP) | Int16(POSIX_SPAWN_SETSIGMASK))
            unsafe posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
            if let output {
                unsafe posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o644)
                unsafe posix_spawn_file_actions_adddup2(&actions, 1, 2)
            }
            if let ends {
                unsafe posix_spawn_file_actions_adddup2(&actions, ends.input, 0)
                unsafe posix_spawn_file_actions_adddup2(&actions, ends.output, 1)
                if let errors = ends.errors { unsafe posix_spawn_file_actions_adddup2(&actions, errors, 2) }
            }
            return unsafe posix_spawnp(
                &processID, arguments.first ?? "", &actions, &attributes, list.mutable, variables.mutable)
        }
        shared.state.withLock { state in
            if code == 0 {
                state.processID = processID
            } else {
                state.failure = SystemError(operation: "start", subject: arguments.first ?? "", code: code)
            }
        }
    }

    /// Returns this process's environment, with `environment` added and taking precedence.
    private static func merged(_ environment: [String: String]) -> [String] {
        var variables: [String] = []
        // SAFETY: `environ` ends with a null pointer; nobody changes it while the hub runs.
        var entry = unsafe environ
        while let text = unsafe entry.pointee {
            let variable = unsafe String(cString: text)
            let name = variable.prefix { $0 != "=" }
            if environment[String(name)] == nil { variables.append(variable) }
            unsafe entry += 1
        }
        return variables + environment.map { "\($0.key)=\($0.value)" }
    }

    private static func watch(_ shared: Shared) {
        let processID = shared.state.withLock { $0.processID }
        var status: Int32 = 0
        var nanoseconds: UInt64 = 0
        // SAFETY: both are locals.
        while unsafe tw_wait(processID, &status, &nanoseconds) == -1, errno == EINTR {}
        let signal = status & 0x7f
        shared.state.withLock { [nanoseconds] state in
            state.usage.cpuNanoseconds = nanoseconds
            state.ending = signal == 0 ? .exited((status >> 8) & 0xff) : .killed(signal: signal)
        }
        shared.ended.ring()
    }
}
