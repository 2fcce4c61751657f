import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryOneTime;

/** A candidate of Curator's own make: answers `leads` and `leader` on its input, and ends with it. */
class Latch {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 10_000, 10_000, new RetryOneTime(100));
        client.start();
        LeaderLatch latch = new LeaderLatch(client, arguments[1], arguments[2]);
        latch.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(line.equals("leads") ? latch.hasLeadership() : latch.getLeader().getId());
        }
        latch.close();
        client.close();
    }
}
