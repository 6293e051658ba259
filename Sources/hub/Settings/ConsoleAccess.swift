/// Choice of who may use the web console.
public enum ConsoleAccess: String, Sendable, CaseIterable {
    /// Access for operators who sign in with a token. If no operators' secret is set, there are none.
    case on
    /// Access also for everybody on this machine, without a token, as on a developer's own machine.
    case loopback
    /// No access: the hub does not serve the console.
    case off
}
