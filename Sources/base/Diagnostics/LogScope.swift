/// Name of the project for which a thread works. The log adds it to each line that the thread writes.
///
/// Rooms need not know about projects. The code that starts a project runs within the project's scope. Threads that it
/// starts keep the scope by `carried`.
public enum LogScope {
    @TaskLocal private static var project: String?

    static var currentProject: String? { project }

    /// Runs `body`. The log adds the project's name to each line that this thread writes in `body`.
    public static func of<T>(_ name: String, _ body: () throws -> T) rethrows -> T {
        try $project.withValue(name, operation: body)
    }

    /// Returns a closure that runs `body` in the caller's scope, on any thread.
    public static func carried(_ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        guard let project else { return body }
        return { of(project, body) }
    }
}
