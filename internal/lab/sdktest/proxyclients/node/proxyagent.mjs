// Lets fetch send through the proxy at $HTTP_PROXY.
import { ProxyAgent, setGlobalDispatcher } from 'undici';

setGlobalDispatcher(new ProxyAgent(process.env.HTTP_PROXY));
