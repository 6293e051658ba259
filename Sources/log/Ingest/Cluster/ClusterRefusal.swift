/// Reason why a node does not take part in its cluster: the stream cannot continue its log. Only an operator can decide
/// what is to become of the log.
public enum ClusterRefusal: String, Sendable, CaseIterable {
    /// The log has changes that the stream lacks.
    case logAhead = "log_ahead"
    /// The log follows another stream: this one was removed and made again, or belongs to another cluster.
    case otherStream = "other_stream"
    /// The log was begun before the node belonged to a cluster, and the stream already has a log.
    case otherLog = "other_log"
    /// The stream does not have any more what comes behind the end of the log.
    case olderThanStream = "older_than_stream"
    /// The log follows a stream, and the servers have none.
    case streamMissing = "stream_missing"
    /// Another node has this node's name, and feeds the stream.
    case nameTaken = "name_taken"
}
