/// Project for which a thread works: the log marks each line of the thread with the project's name.
///
/// Rooms that do not know projects need not mention them. The code that starts a project does so within the project's
/// scope, and threads started there keep the scope by `carried`.
public enum LogScope {
    @TaskLocal private static var project: String?

    static var currentProject: String? { project }

    /// Runs `body`. Log lines that this thread writes meanwhile are marked with the project's name.
    public static func of<T>(_ name: String, _ body: () throws -> T) rethrows -> T {
        try $project.withValue(name, operation: body)
    }

    /// Returns the body with the caller's project as its scope, on whatever thread the body runs.
    public static func carried(_ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        guard let project else { return body }
        return { of(project, body) }
    }
}
